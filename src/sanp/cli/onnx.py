"""`sanp export`: a run's network as an ONNX file."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from sanp.cli.console import make_console, plain
from sanp.experiments.run_folder import load_data, load_run, read_run
from sanp.experiments.shipped import run_named


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or the name of a pretrained network.")],
    file: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    masked: Annotated[
        bool, typer.Option("--masked", help="Compute pruned channels and zero them, for runtimes that cannot skip.")
    ] = False,
) -> None:
    """Write a run's network as an ONNX file that skips pruned channels, checked in ONNX Runtime."""
    # Imported here, since no other command needs ONNX.
    from sanp.engine.onnx.exporting import export as write

    run = run_named(run)
    dataset = load_data(read_run(run))
    example = torch.zeros(1, dataset.channels, dataset.image_size, dataset.image_size)
    write(load_run(run, dataset), file, example, dynamic=not masked)
    make_console().print(f"{plain(file)}: {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
