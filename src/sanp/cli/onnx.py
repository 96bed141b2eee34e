"""`sanp export`: a run's network as an ONNX file."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from sanp.cli.console import make_console, plain
from sanp.cli.target import FORMS, WeightsOption, build_target, read_input, with_network
from sanp.experiments.inputs import read_inputs
from sanp.experiments.run_folder import load_run
from sanp.experiments.shipped import run_named


@with_network
def export(
    target: Annotated[str, typer.Argument(help=f"Folder of a finished run, name of a pretrained network, or {FORMS}.")],
    file: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    input: Annotated[
        str, typer.Option(help="Shape of an input of a network that is no run, as 1,3,224,224.")
    ] = "1,3,224,224",
    weights: WeightsOption = None,
    masked: Annotated[
        bool, typer.Option("--masked", help="Compute pruned channels and zero them, for runtimes that cannot skip.")
    ] = False,
) -> None:
    """Write a run's network as an ONNX file that skips pruned channels, checked in ONNX Runtime."""
    # Imported here, since no other command needs ONNX.
    from sanp.engine.onnx.exporting import export as write

    run = run_named(Path(target))
    if run.is_dir():
        inputs = read_inputs(run)
        example = torch.zeros(1, len(inputs.mean), inputs.image_size, inputs.image_size)
        network = load_run(run, inputs)
    else:
        example = read_input(input)
        network = build_target(target, weights, example)
    write(network.eval(), file, example, dynamic=not masked)
    make_console().print(f"{plain(file)}: {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
