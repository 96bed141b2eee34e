"""`sanp predict`: what a run's network says of image files."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from sanp.cli.console import make_console, plain
from sanp.cli.options import BudgetOption, EngineDevice, PrecisionOption, RunArgument, with_network


@with_network
def predict(
    run: RunArgument,
    images: Annotated[list[Path], typer.Argument(help="PNG, JPEG or WebP files.")],
    budget: BudgetOption = None,
    precision: PrecisionOption = "fp32",
    device: EngineDevice = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Classify image files: label, confidence, FLOPs and time of each."""
    from sanp.cli.target import engine_device
    from sanp.experiments.shipped import run_named
    from sanp.gating.flops import human
    from sanp.report.predict import Predictor

    predictor = Predictor(run_named(run), budget, precision, device=engine_device(device, precision))
    found = [predictor.predict(image) for image in images]
    if as_json:
        sys.stdout.write(json.dumps([prediction.as_dict() for prediction in found]) + "\n")
        return
    table = Table(
        Column("image", overflow="fold"), Column("label", overflow="fold"), "confidence", "FLOPs", "of dense", "ms"
    )
    for each in found:
        shares = (f"{each.confidence:.1%}", human(each.flops), f"{each.kept:.1%}")
        table.add_row(plain(each.image), plain(each.label), *shares, f"{1e3 * each.seconds:.3g}")
    make_console().print(table)
