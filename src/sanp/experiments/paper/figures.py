"""The data of the paper's figures, as results lines made from finished runs; figures are drawn from these lines alone.

fig1.jsonl   the channels that are kept in each layer, and the mean activation by class in the last convolution
fig3.jsonl   the numbers of never, sometimes and always pruned channels of each layer
fig4.jsonl   how many images compute how many channels of the last block
"""

from collections.abc import Iterable
from pathlib import Path

import torch

from sanp.core.devices import CPU, chosen_device
from sanp.experiments import run_folder
from sanp.experiments.metrics import seconds_of
from sanp.experiments.paper.channel_use import ChannelUse, channel_use
from sanp.experiments.paper.contents import FIGURES, TABLES
from sanp.experiments.paper.rows import RecipeRow, Scope, row_folder, same_work, select
from sanp.experiments.paper.stale import changed
from sanp.experiments.results import Line, append, read_run_lines, result_line
from sanp.experiments.training_batches import Tell


def figure_rows(
    recipes: Path, figure: str, *, backbone: str | None = None, rows: Iterable[str] = (), scope: Scope | None = None
) -> list[RecipeRow]:
    """The rows for a figure: those with the names ``rows`` if given, else the usual ones.

    ``recipes`` is the folder of the recipes; ``backbone`` and ``scope`` are as in :func:`select`.
    """
    wanted = tuple(rows)
    found = select(recipes, TABLES, backbone=backbone, rows=wanted, scope=scope, unreadable=None if wanted else [])
    return found if wanted else [row for row in found if row.name in FIGURES[figure]]


def make_lines(
    figure: str,
    rows: Iterable[RecipeRow],
    runs: Path,
    results: Path,
    *,
    scope: Scope | None = None,
    tell: Tell = lambda line: None,
) -> int:
    """Adds a line to the figure's results file for each row whose run is finished and has none yet.

    ``runs`` holds the run folders, ``results`` the results files. ``scope`` is that of the rows, and ``tell`` is called
    with lines to show. Returns how many of the rows have a line now.
    """
    path, there = results / f"{figure}.jsonl", 0
    for row in rows:
        folder = row_folder(runs, row.name, row.recipe)
        lines = [line for line in read_run_lines(path) if line["name"] == row.name and same_work(line, row.recipe)]
        if any(not changed(line["config"], row.recipe) for line in lines):
            tell(f"{figure}: {row.name} is in {path.name} already")
        elif run_folder.is_finished(folder):
            append(path, make_line(figure, row.name, folder, chosen_device(row.recipe.device)))
            tell(f"{figure}: {row.name} added")
        elif lines:
            tell(f"{figure}: {row.name} is stale in {path.name}: {'; '.join(changed(lines[-1]['config'], row.recipe))}")
        else:
            tell(f"{figure}: {row.name} is not run yet (no {folder}): {command(row, scope or Scope())} --runs {runs}")
            continue
        there += 1
    return there


def command(row: RecipeRow, scope: Scope) -> str:
    """The command that runs a row; ``scope`` is the scope that the row was selected with."""
    table, _, name = row.name.partition("/")
    scale = "" if scope.epochs == 1 else f" --epochs-scale {scope.epochs:g}"
    limit = "" if scope.images is None else f" --limit {scope.images}"
    return f"sanp reproduce {table} --rows {name}{scale}{limit}"


def make_line(figure: str, name: str, folder: Path, device: torch.device = CPU) -> Line:
    """The results line of the run in ``folder``, with the data of the figure; ``name`` is the row's name.

    The network runs on ``device``.
    """
    line = result_line(name, folder, seconds_of(folder))
    report = run_folder.read_report(folder)
    if figure == "fig3":
        return {**line, "layers": report["layers"]}
    dataset = run_folder.load_data(run_folder.read_run(folder))
    batches = run_folder.evaluation_batches(dataset)
    used = channel_use(run_folder.load_run(folder, dataset).to(device), batches, dataset.num_classes)
    if figure == "fig4":
        return {**line, **by_image(used)}
    classes = {"classes": list(dataset.classes), "activation": rounded(used.activation.tolist())}
    return {**line, "layers": report["layers"], **classes}


def by_image(used: ChannelUse) -> Line:
    """Figure 4: the numbers of channels that images compute in the last block, and how many images compute each."""
    numbers, counts = used.last_block.unique(return_counts=True)
    return {
        "block_channels": used.block_channels,
        "computed": numbers.tolist(),
        "images_by_computed": counts.tolist(),
    }


def rounded(rows: list[list[float]]) -> list[list[float]]:
    """The numbers with three digits, which are enough for a figure."""
    return [[float(f"{value:.3g}") for value in row] for row in rows]
