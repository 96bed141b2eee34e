"""`sanp eval`: accuracy and FLOPs of a run's network on the test images."""

import json
import sys
from typing import Annotated

import typer

from sanp.cli.console import console, plain_lines
from sanp.cli.options import BudgetOption, DeviceOption, RunArgument, with_network


@with_network
def evaluate_run(
    run: RunArgument,
    data: Annotated[str | None, typer.Option(help="Data set to evaluate on (default: the run's own).")] = None,
    device: DeviceOption = "auto",
    budget: BudgetOption = None,
    max_flops: Annotated[
        str | None,
        typer.Option(help="What no image may cost more than, as 40% or 60M; the least salient channels close."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Evaluate a run's network on the test images: accuracy, FLOPs, layers."""
    from sanp.core.devices import chosen_device
    from sanp.evaluation import evaluate, report_text
    from sanp.experiments.budgeted import at_budget, training_images
    from sanp.experiments.recipe import make_recipe
    from sanp.experiments.run_folder import evaluation_batches, load_data, load_run, read_run
    from sanp.experiments.shipped import run_named

    place, run = chosen_device(device), run_named(run)
    recipe = read_run(run)
    if data is not None:
        recipe = make_recipe({"data": data, "image_size": recipe.image_size}, "--data")
    dataset = load_data(recipe)
    network = at_budget(load_run(run, dataset), budget, training_images(dataset), max_flops=max_flops)
    report = evaluate(network.to(place), evaluation_batches(dataset))
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        console.print(plain_lines(report_text(report, most=None)), soft_wrap=True)
