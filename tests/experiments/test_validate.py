"""Runs that hold images out: what they train on, what they measure when, and that the test images are read once."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import sanp
from sanp import data
from sanp.cli.train import said_of_held_out
from sanp.experiments.recipe import make_recipe
from sanp.experiments.results import result_line
from sanp.experiments.run import train
from sanp.experiments.run_folder import evaluation_batches, load_data, load_run
from tests.tools import tiny_run


class Counted:
    """A split that counts how often its images are read."""

    def __init__(self, split: data.Split) -> None:
        self.split, self.reads = split, 0

    @property
    def labels(self) -> Tensor:
        return self.split.labels

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.split.shape

    def __len__(self) -> int:
        return len(self.split)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        self.reads += 1
        return self.split.read(batches)

    def take(self, positions: Tensor) -> data.Examples:
        return self.split.take(positions)


@pytest.fixture
def test_images(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The test images of every run in this file."""
    tiny_run.install(monkeypatch)
    torch.set_num_threads(1)
    squares = tiny_run.squares()
    assert isinstance(squares.test, data.Split)
    counted = Counted(squares.test)
    monkeypatch.setitem(data.DATASETS, "digits", lambda root, **_: replace(squares, test=counted))
    return counted


def test_with_held_out_images_each_network_reads_the_test_images_once_at_the_end(
    test_images: Counted, tmp_path: Path
) -> None:
    seen: list[int] = []
    recipe = tiny_run.recipe(validate=64)
    finished = train(recipe, tmp_path / "run", watch=lambda _: seen.append(test_images.reads))
    assert set(seen) == {0}
    assert test_images.reads == 2  # the network before pruning, and after
    lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    assert all("test_accuracy" not in line and 0 <= line["held_out_accuracy"] <= 1 for line in lines)

    dataset = load_data(recipe)
    assert (len(dataset.train), dataset.held_out and len(dataset.held_out)) == (192, 64)
    again = sanp.evaluate(load_run(finished.folder, dataset), evaluation_batches(dataset, held_out=True))
    written = json.loads((finished.folder / "report.json").read_text())
    assert written["held_out"]["accuracy"] == again.accuracy and written["held_out"]["images"] == 64
    assert written["accuracy"] == finished.pruned.accuracy
    assert sum(map(sum, written["confusion"])) == 128  # the final report is of the test images
    assert result_line("x", finished.folder, 0)["held_out_error"] == 1 - again.accuracy


def test_a_trial_never_reads_the_test_images(test_images: Counted, tmp_path: Path) -> None:
    finished = train(tiny_run.recipe(validate=0.25, report_on="held-out"), tmp_path / "run")
    assert test_images.reads == 0
    assert int(finished.pruned.confusion.sum()) == 64


def test_the_held_out_images_are_the_same_for_every_limit_and_seed(test_images: Counted) -> None:
    def held_out(**settings: object) -> Tensor:
        split = load_data(tiny_run.recipe(validate=40, **settings)).held_out
        assert isinstance(split, data.Split)
        return split.images

    usual = held_out()
    for settings in ({"limit": 50}, {"seed": 3}):
        assert torch.equal(held_out(**settings), usual)
    assert len(load_data(tiny_run.recipe(validate=40, limit=50)).train) == 50


def test_a_report_on_held_out_images_needs_some() -> None:
    with pytest.raises(sanp.SanpError, match="no image is: set validate"):
        make_recipe({"report_on": "held-out"})
    with pytest.raises(sanp.SanpError, match="validate is 1:"):
        make_recipe({"validate": 1})


def test_what_is_held_out_is_told() -> None:
    told = said_of_held_out(make_recipe({"validate": 5000}))
    assert told.startswith("held out: 5,000 training images, the same in")
    trial = {"validate": 0.1, "report_on": "held-out", "pretrained": "net.safetensors"}
    told = said_of_held_out(make_recipe(trial))
    assert "10% of the training images" in told
    assert told.endswith("the test images are not read; net.safetensors may have been trained on them")
