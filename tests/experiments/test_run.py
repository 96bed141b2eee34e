import dataclasses
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import sanp
import sanp.experiments.run
from sanp.experiments.recipe import make_recipe
from sanp.experiments.run import train
from sanp.experiments.run_folder import evaluation_batches, load_run, read_run
from sanp.experiments.training_batches import enough
from tests.tools import tiny_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sanp.experiments.run.Finished]:
    patch = pytest.MonkeyPatch()
    tiny_run.install(patch)
    torch.set_num_threads(1)
    yield train(tiny_run.recipe(), tmp_path_factory.mktemp("runs") / "run")
    patch.undo()


def test_the_folder_holds_everything(finished: sanp.experiments.run.Finished) -> None:
    names = {path.name for path in finished.folder.iterdir()} - {"tensorboard", ".lock"}
    assert names == {"config.toml", "metrics.jsonl", "report.json", "dense.safetensors", "model.safetensors"}


def test_the_config_is_all_that_is_needed_to_run_it_again(
    finished: sanp.experiments.run.Finished, tmp_path: Path
) -> None:
    settings = tomllib.loads((finished.folder / "config.toml").read_text())
    again = train(make_recipe(settings), tmp_path / "again")
    assert again.pruned.as_dict() == finished.pruned.as_dict()


def test_a_line_an_epoch(finished: sanp.experiments.run.Finished) -> None:
    lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [
        *(("pretrain", epoch) for epoch in (1, 2)),
        ("warm-up", 1),
        *(("joint", epoch) for epoch in (1, 2, 3)),
    ]
    assert lines[0]["cost"] is None and lines[-1]["cost"] < 1
    assert lines[-1]["target"] == 0.5
    assert lines[1]["loss"] < lines[0]["loss"]
    assert 0 <= lines[-1]["test_accuracy"] <= 1


def test_the_saved_network_is_the_one_that_was_evaluated(finished: sanp.experiments.run.Finished) -> None:
    dataset = tiny_run.squares()
    report = sanp.evaluate(load_run(finished.folder, dataset), evaluation_batches(dataset))
    written = json.loads((finished.folder / "report.json").read_text())
    assert report.accuracy == written["accuracy"] and report.flops == written["flops"]
    assert written["dense"]["accuracy"] == finished.dense.accuracy
    assert read_run(finished.folder).backbone == "tiny"


def test_a_run_from_before_a_setting_goes_on_as_it_began(
    finished: sanp.experiments.run.Finished, tmp_path: Path
) -> None:
    config = (finished.folder / "config.toml").read_text()
    older = [line for line in config.splitlines() if not line.startswith("most")]
    (tmp_path / "config.toml").write_text("\n".join(older))
    assert len(older) == len(config.splitlines()) - 1
    assert (read_run(finished.folder).spm.most, read_run(tmp_path).spm.most) == (8.0, None)


def test_a_dense_checkpoint_can_be_started_from(finished: sanp.experiments.run.Finished, tmp_path: Path) -> None:
    dense = str(finished.folder / "dense.safetensors")
    seen: list[str] = []
    again = train(tiny_run.recipe(pretrained=dense), tmp_path / "run", watch=lambda p: seen.append(p.stage))
    assert set(seen) == {"warm-up", "joint"}
    assert again.dense.accuracy == finished.dense.accuracy


def test_an_impossible_budget_fails_before_pretraining(finished: sanp.experiments.run.Finished, tmp_path: Path) -> None:
    seen: list[str] = []
    with pytest.raises(sanp.SanpError, match="give at least that"):
        train(tiny_run.recipe(budget="1%"), tmp_path / "run", watch=lambda p: seen.append(p.stage))
    assert seen == []


def test_a_folder_of_few_images_gets_enough_steps_and_says_so() -> None:
    squares = tiny_run.squares()
    told: list[str] = []
    assert enough(squares, 32, 25, told.append) is squares.train and told == []  # a data set of the package
    folder = dataclasses.replace(squares, name="imagefolder:photos")
    found = enough(folder, 32, 25, told.append)  # 256 images make 8 steps of 32
    assert isinstance(found, sanp.data.Repeated) and found.times == 4
    assert "goes through them 4 times, in 32 steps of 32" in told[0]
    assert enough(folder, 32, 8, told.append) is squares.train
