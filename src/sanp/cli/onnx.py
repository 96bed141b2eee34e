"""`sanp export`: a run's network as an ONNX file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sanp.cli.console import make_console, plain
from sanp.cli.options import NETWORK_NAMES, BudgetOption, InputOption, WeightsOption, with_network
from sanp.core.errors import SanpError


@with_network
def export_run(
    target: Annotated[
        str, typer.Argument(help=f"Folder of a finished run, name of a pretrained network, or {NETWORK_NAMES}.")
    ],
    file: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    input: InputOption = "1,3,224,224",
    weights: WeightsOption = None,
    budget: BudgetOption = None,
    precision: Annotated[str, typer.Option(help="What convolutions are computed in: fp32 or int8.")] = "fp32",
    device: Annotated[str, typer.Option(help="auto or cpu: a file is written and checked on the CPU.")] = "auto",
    masked: Annotated[
        bool, typer.Option("--masked", help="Compute pruned channels and zero them, for runtimes that cannot skip.")
    ] = False,
    skipping: Annotated[
        bool, typer.Option("--skipping", help="Skip pruned channels, even where that takes longer.")
    ] = False,
) -> None:
    """Write a run's network as an ONNX file, checked in ONNX Runtime; it skips pruned channels if that is faster."""
    import torch

    from sanp.cli.target import build_target, engine_device, read_input
    from sanp.core.devices import CPU
    from sanp.engine.onnx.exporting import export
    from sanp.experiments.budgeted import at_budget
    from sanp.experiments.calibrated import calibrated
    from sanp.experiments.inputs import check_fits, read_inputs
    from sanp.experiments.run_folder import load_run
    from sanp.experiments.shipped import run_named

    if engine_device(device) != CPU:
        raise SanpError(f"--device {device}: a file is written and checked on the CPU; leave --device out, or give cpu")
    if masked and skipping:
        raise SanpError("--masked and --skipping were given: a file has one of the two forms")
    run = run_named(Path(target))
    if run.is_dir():
        inputs = read_inputs(run)
        network = at_budget(calibrated(load_run(run, inputs), run, precision), budget)
        check_fits(network, inputs, run)
        shape = (1, len(inputs.mean), inputs.image_size, inputs.image_size)
        example = torch.randn(shape, generator=torch.Generator().manual_seed(0))  # as bright as a normalised image
    elif budget is not None:
        raise SanpError(f"--budget {budget} is for the folder of a run: {target} is none")
    else:
        example = read_input(input)
        network = build_target(target, weights, example)
    dynamic: Literal["auto"] | bool = skipping if masked or skipping else "auto"
    written = export(network.eval(), file, example, dynamic=dynamic, precision=precision)
    form = "skips pruned channels" if written.skips else "computes every channel"
    said = f"{plain(file)}: {file.stat().st_size / 1e6:.1f} MB, {precision}, {form} ({plain(written.why)})"
    make_console().print(said, soft_wrap=True)
