"""`sanp train`: train a network and prune it to a budget, or go on with a run that was interrupted."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sanp.cli.console import console, plain
from sanp.cli.options import NETWORK_NAMES
from sanp.cli.recipe_options import HelpAll
from sanp.core.errors import SanpError

if TYPE_CHECKING:
    from sanp.experiments.recipe import Recipe
    from sanp.experiments.run import Finished


def train_run(
    *,
    network: Annotated[str | None, typer.Option(help=f"A network of your own: {NETWORK_NAMES}.")] = None,
    epochs: Annotated[
        str | None, typer.Option(help="Epochs of the stages: 20,1,12 for pretrain, warm-up and joint, or N for N,1,N.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: a new one in runs/).")] = None,
    recipe: Annotated[Path | None, typer.Option(help="TOML file of settings; options override them.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    help_all: HelpAll = False,
    settings: dict[str, Any],
) -> None:
    """Train a network, prune it to a budget in three stages, and evaluate it."""
    from sanp.experiments.own_network import given_network
    from sanp.experiments.recipe import make_recipe, merge, read_recipe

    if resume is not None:
        threads = settings.pop("threads", None)
        if settings or epochs is not None or out is not None or recipe is not None:
            raise SanpError(
                f"--resume goes on with the settings of {resume} and takes only --threads and --network: to change "
                f"one, edit {resume / 'config.toml'}"
            )
        with given_network(network):
            _go_on(resume, threads)
        return
    if network is not None:
        if "backbone" in settings:
            both = f"--network {network} and --backbone {settings['backbone']}"
            raise SanpError(f"{both} were given: give one of the two")
        settings = {**settings, "backbone": network}
    given = merge(read_recipe(recipe) if recipe is not None else {}, settings)
    if epochs is not None:
        given = merge(given, {"fit": parse_epochs(epochs)})
    with given_network(settings.get("backbone")):
        _start(make_recipe(given, str(recipe) if recipe is not None else "the command line"), out)


def parse_epochs(text: str) -> dict[str, int]:
    """The stages' epochs from ``P,W,J`` or ``N``, as settings of the section fit."""
    numbers = [part.strip() for part in text.split(",")]
    if len(numbers) not in (1, 3) or not all(part.isdecimal() and len(part) < 10 for part in numbers):
        raise SanpError(f"--epochs {text!r}: give one number, or three as 20,1,12 for pretrain, warm-up and joint")
    stages = [int(part) for part in numbers]
    if len(stages) == 1:
        stages = [stages[0], min(1, stages[0]), stages[0]]
    return dict(zip(("pretrain_epochs", "warmup_epochs", "joint_epochs"), stages, strict=True))


def said_of_held_out(recipe: "Recipe") -> str:
    """What is told at the start of a run that holds images out: how many, and what they and the test images are for."""
    amount = recipe.validate or 0
    images = f"{amount:.0%} of the" if amount < 1 else f"{amount:,}"
    read = "are read once, at the end" if recipe.report_on == "test" else "are not read"
    seen = "" if recipe.pretrained is None else f"; {recipe.pretrained} may have been trained on them"
    return (
        f"held out: {images} training images, the same in every run, for all that is measured in training; the test "
        f"images {read}{seen}"
    )


def _start(recipe: "Recipe", out: Path | None) -> None:
    """Trains a recipe in the folder ``out``, or in a new one."""
    from sanp.cli.display import live_progress
    from sanp.core import distributed
    from sanp.experiments.run import train
    from sanp.experiments.run_folder import folder_name

    network = recipe.backbone.replace(":", ".").replace("/", ".")
    name = folder_name(f"{network}-{recipe.data.partition(':')[0]}") + f"-{datetime.now():%Y%m%d-%H%M%S}"
    folder = out or Path("runs") / distributed.texts(name)[0]  # the clocks of several processes differ
    what = f"{recipe.method} on {recipe.backbone}, {recipe.data}, budget {recipe.budget}: run folder {folder}"
    console.print(plain(what))
    if recipe.validate is not None:
        console.print(plain(said_of_held_out(recipe)), soft_wrap=True)
    with live_progress(console, recipe) as live:
        finished = train(recipe, folder, watch=live, tell=_tell)
    _show(finished, recipe.budget)


def _go_on(folder: Path, threads: int | None) -> None:
    """Goes on with an interrupted run, with this many threads or as many as it had."""
    from sanp.cli.display import live_progress
    from sanp.experiments.run import resumed
    from sanp.experiments.run_folder import read_run

    recipe = read_run(folder)
    with live_progress(console, recipe) as live:
        finished = resumed(folder, watch=live, tell=_tell, threads=threads)
    _show(finished, recipe.budget)


def _tell(line: str) -> None:
    console.print(plain(line), soft_wrap=True)


def _show(finished: "Finished", budget: str) -> None:
    from sanp.cli.display import before_and_after

    console.print(before_and_after(finished, budget))
    console.print(f"run folder: {plain(finished.folder)}")
