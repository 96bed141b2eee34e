"""The command line: thin shells over functions that a script can call; the only place that prints."""

import inspect
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.table import Table

from sanp import data
from sanp.cli.bench import bench
from sanp.cli.compare import compare
from sanp.cli.display import LiveProgress, before_and_after, report_table
from sanp.cli.explore import explore
from sanp.cli.inspect import inspect as inspect_command
from sanp.cli.onnx import export
from sanp.cli.predict import predict
from sanp.cli.report import report
from sanp.cli.reproduce import reproduce
from sanp.core import distributed
from sanp.core.errors import SanpError
from sanp.evaluation import evaluate
from sanp.experiments.recipe import PRESETS, Recipe, make_recipe, merge, read_recipe, sections
from sanp.experiments.run import Finished, resumed
from sanp.experiments.run import train as train_run
from sanp.experiments.run_folder import evaluation_batches, load_data, load_run, read_run
from sanp.experiments.settings import default_of, help_texts, kinds, plain_fields, read_text
from sanp.experiments.shipped import run_named

app = typer.Typer(help=__doc__.partition(":")[0] + " of sanp.", no_args_is_help=True, add_completion=False)
data_app = typer.Typer(help="Data sets: what there is, and fetching them.", no_args_is_help=True)
app.add_typer(data_app, name="data")
for command in (bench, compare, explore, export, predict, report, reproduce):
    app.command()(command)
app.command(name="inspect")(inspect_command)
console = Console()
_debug = {"on": False}


def _version(wanted: bool) -> None:
    if wanted:
        python = platform.python_version()
        sys.stdout.write(f"sanp {metadata.version('sanp')}, torch {metadata.version('torch')}, Python {python}\n")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, help="Show the versions and exit.")] = False,
) -> None:
    """Self-Adaptive Network Pruning: a convolutional network that computes only the channels an image needs."""
    _debug["on"] = debug


def main() -> None:
    """Runs the command line; an error that the user can mend is one line."""
    speaks = True
    try:
        with distributed.joined():
            speaks = distributed.rank() == 0
            console.quiet = not speaks
            app()
    except SanpError as error:
        if _debug["on"]:
            raise
        if speaks or isinstance(error, distributed.RankLost):  # else the first process says the same
            line = escape(" ".join(str(error).split()))
            Console(stderr=True).print(f"[red]error:[/red] {line}", highlight=False, soft_wrap=True)
        sys.exit(2)


def with_recipe_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for every setting of a recipe; it gets those that were used as ``settings``."""
    own = [parameter for name, parameter in inspect.signature(command).parameters.items() if name != "settings"]
    places = {f"set_{section}_{name}": (section, name) for section, name, _ in _settings()}

    def filled(**given: Any) -> None:
        settings: dict[str, Any] = {}
        for parameter, (section, name) in places.items():
            text = given.pop(parameter)
            if text is None:
                continue
            config = Recipe if section == "" else sections()[section]
            value = read_text(text, kinds(config)[name], f"--{_option(section, name)}")
            settings = merge(settings, {name: value} if section == "" else {section: {name: value}})
        command(**given, settings=settings)

    extra = [_parameter(section, name, default) for section, name, default in _settings()]
    filled.__signature__ = inspect.Signature(own + extra)  # type: ignore[attr-defined]
    filled.__doc__ = command.__doc__
    filled.__name__ = command.__name__
    return filled


def _settings() -> list[tuple[str, str, Any]]:
    """Section, name and default of every setting."""
    plain = [(field.name, default_of(field)) for field in plain_fields(Recipe)]
    found: list[tuple[str, str, Any]] = [("", name, default) for name, default in plain if not is_dataclass(default)]
    for section, config in sections().items():
        found += [(section, field.name, default_of(field)) for field in fields(config)]
    return found


def _option(section: str, name: str) -> str:
    dashed = name.replace("_", "-")
    return dashed if section == "" else f"{section}.{dashed}"


def _parameter(section: str, name: str, default: Any) -> inspect.Parameter:
    config = Recipe if section == "" else sections()[section]
    panel = "The run" if section == "" else f"Section {section}: {_section_help(section, config)}"
    shown = "none" if default is None else default
    option = typer.Option(
        f"--{_option(section, name)}",
        help=f"{help_texts(config)[name]} (default: {shown})",
        rich_help_panel=panel,
        show_default=False,
        metavar="VALUE",
    )
    return inspect.Parameter(
        f"set_{section}_{name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _section_help(section: str, config: type) -> str:
    return help_texts(Recipe).get(section) or str(config.__doc__).partition("\n")[0].rstrip(".")


@app.command()
@with_recipe_options
def train(
    *,
    epochs: Annotated[
        str | None, typer.Option(help="Epochs of the stages: 20,1,12 for pretrain, warm-up and joint, or N for N,1,N.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/ and the time).")] = None,
    recipe: Annotated[Path | None, typer.Option(help="Settings from a TOML file; options come on top.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    settings: dict[str, Any],
) -> None:
    """Train a network and prune it to a budget: pretrain, warm up, train jointly, evaluate."""
    if resume is not None:
        threads = settings.pop("threads", None)
        if settings or epochs is not None or out is not None or recipe is not None:
            raise SanpError(
                f"--resume goes on with the settings of {resume} and takes no other option but --threads: to change "
                f"one, edit {resume / 'config.toml'}"
            )
        config = read_run(resume)
        with LiveProgress(console, config.fit, config.pretrained is not None) as live:
            _show(resumed(resume, watch=live, threads=threads), config.budget)
        return
    given = merge(read_recipe(recipe) if recipe is not None else {}, settings)
    if epochs is not None:
        given = merge(given, {"fit": read_epochs(epochs)})
    chosen = make_recipe(given, str(recipe) if recipe is not None else "the command line")
    name = f"{chosen.backbone}-{chosen.data.partition(':')[0]}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = out or Path("runs") / distributed.texts(name)[0]  # the clocks of several processes differ
    console.print(f"{chosen.method} on {chosen.backbone}, {chosen.data}, budget {chosen.budget}: run folder {folder}")
    with LiveProgress(console, chosen.fit, chosen.pretrained is not None) as live:
        finished = train_run(chosen, folder, watch=live)
    _show(finished, chosen.budget)


def read_epochs(text: str) -> dict[str, int]:
    """The stages' epochs from ``P,W,J`` or ``N``."""
    numbers = [part.strip() for part in text.split(",")]
    if len(numbers) not in (1, 3) or not all(part.isdecimal() for part in numbers):
        raise SanpError(f"--epochs {text!r}: give one number, or three as 20,1,12 for pretrain, warm-up and joint")
    stages = [int(part) for part in numbers]
    if len(stages) == 1:
        stages = [stages[0], min(1, stages[0]), stages[0]]
    return dict(zip(("pretrain_epochs", "warmup_epochs", "joint_epochs"), stages, strict=True))


def _show(finished: Finished, budget: str) -> None:
    console.print(before_and_after(finished, budget))
    console.print(f"run folder: {finished.folder}")


@app.command(name="eval")
def evaluate_run(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or the name of a pretrained network.")],
    data: Annotated[str | None, typer.Option(help="Other data than the run's own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Evaluate a run's network on the test images: accuracy, FLOPs, layers."""
    run = run_named(run)
    recipe = read_run(run)
    if data is not None:
        recipe = make_recipe({"data": data, "image_size": recipe.image_size}, "--data")
    dataset = load_data(recipe)
    report = evaluate(load_run(run, dataset), evaluation_batches(dataset))
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    else:
        console.print(report_table(report))


@data_app.command("list")
def list_data() -> None:
    """The data sets by name, and whether they are here."""
    table = Table("name", "images", "classes", "size", "here")
    for entry in data.describe():
        size = "" if entry.bytes is None else f"{entry.bytes / 1e6:.0f} MB"
        table.add_row(entry.name, str(entry.images), str(entry.classes), size, str(entry.path) if entry.here else "no")
    console.print(table)


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, ...")],
    root: Annotated[Path | None, typer.Option(help="Folder to keep it in (default: $SANP_DATA or the cache).")] = None,
) -> None:
    """Fetch a data set and check it."""
    with Bar(console=console) as bar:
        task = bar.add_task(name, total=None)

        def show(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        path = data.get(name, root, progress=show)
    console.print(f"{name}: {path}")


@app.command()
def presets() -> None:
    """What the presets change from the defaults."""
    for name, settings in PRESETS.items():
        console.print(name, settings or "the defaults")
