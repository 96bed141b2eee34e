"""Measures the seconds per image of finished runs with the engine, and writes them into their reports."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from torch import Tensor

from sanp.checkpoint import load
from sanp.engine.bench.latency import seconds_per_image
from sanp.experiments.own_network import build_for
from sanp.experiments.run_folder import (
    DENSE,
    evaluation_batches,
    load_data,
    load_run,
    read_report,
    read_run,
    write_report,
)

TIMED_IMAGES = 30
"""number of test images to measure on"""


def time_runs(folders: Iterable[Path]) -> None:
    """Measures the networks of the runs in ``folders``.

    Runs of the same backbone and data set are measured in turn, with the dense network once for all of them.
    """

    def kind(folder: Path) -> tuple[str, str, int]:
        recipe = read_run(folder)
        return recipe.data, recipe.backbone, recipe.image_size

    for _, alike in groupby(sorted(folders, key=kind), kind):
        _time_alike(list(alike))


def _time_alike(folders: list[Path]) -> None:
    recipe = read_run(folders[0])
    dataset = load_data(recipe)
    batches = evaluation_batches(dataset, TIMED_IMAGES)
    images: Tensor = next(iter(batches))[0]
    fresh = build_for(recipe.backbone, dataset)
    networks = [load(folders[0] / DENSE, fresh), *(load_run(folder, dataset) for folder in folders)]
    dense, *pruned = seconds_per_image(networks, images)
    for folder, seconds in zip(folders, pruned, strict=True):
        found = read_report(folder)
        found["seconds_per_image"], found["dense"]["seconds_per_image"] = seconds, dense
        write_report(folder, found)
