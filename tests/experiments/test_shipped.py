import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import ship as shipping

import sanp
from sanp.cli import app as cli
from sanp.experiments.inputs import read_inputs
from sanp.experiments.paper.reproduce import reproduce
from sanp.experiments.paper.rows import select
from sanp.experiments.results import append, read_results, result_line
from sanp.experiments.shipped import FILES, result_of
from tests.tools import tiny_run

ROOT = Path(__file__).parents[2]
MODULE = sanp.experiments.shipped


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense run and one that starts from it, with their results lines."""
    place = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        _install(patch)
        sanp.experiments.run.train(tiny_run.recipe(method="dense", budget="100%"), place / "dense")
        start = str(place / "dense" / "model.safetensors")
        sanp.experiments.run.train(tiny_run.recipe(pretrained=start), place / "pruned")
        for file, name in (("dense", "dense"), ("table1", "pruned")):
            line = result_line(name, place / name, 1.0)
            append(place / "results" / f"{file}.jsonl", line)
            append(place / "results" / "fig1.jsonl", {**line, "activation": []})  # a figure's data, with the same error
    return place


def _install(patch: pytest.MonkeyPatch) -> None:
    tiny_run.install(patch)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for shipped networks."""
    _install(monkeypatch)
    place = tmp_path / "weights"
    monkeypatch.setattr(MODULE, "WEIGHTS", place)
    monkeypatch.chdir(tmp_path)
    yield place


@pytest.mark.parametrize(("run", "name"), [("pruned", "tiny-22"), ("dense", "tiny-dense")])
def test_a_shipped_network_answers_as_its_run_in_half_the_bytes(runs: Path, weights: Path, run: str, name: str) -> None:
    report = shipping.ship(runs / run, name, results=runs / "results", into=weights)
    assert sorted(path.name for path in (weights / name).iterdir()) == sorted(FILES)
    small, whole = (path / "model.safetensors" for path in (weights / name, runs / run))
    kernels = [tensor for tensor in sanp.checkpoint.read_network_file(whole)[1].values() if tensor.dim() > 1]
    numbers = sum(tensor.numel() for tensor in kernels)
    assert whole.stat().st_size - small.stat().st_size == pytest.approx(2 * numbers, rel=0.05)
    network = sanp.pretrained(name)
    assert not network.training
    assert all(each.dtype == torch.float32 for each in network.parameters())
    data = tiny_run.squares()
    again = sanp.evaluate(network, sanp.experiments.run_folder.evaluation_batches(data))
    before = json.loads((runs / run / "report.json").read_text())
    assert again.accuracy == report.accuracy == pytest.approx(before["accuracy"], abs=0.0005)
    assert result_of(name)["error"] == before["error"] and result_of(name)["name"] == run
    assert "activation" not in result_of(name)
    inputs = read_inputs(weights / name)
    assert inputs.classes == data.classes and inputs.mean == data.mean
    assert str(runs) not in (weights / name / "config.toml").read_text()  # no path of this machine


def test_a_network_that_half_precision_changes_is_refused_and_nothing_is_left(
    runs: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image of 128 more is 0.78 points."""
    report = json.loads((runs / "pruned" / "report.json").read_text())
    monkeypatch.setattr(
        "sanp.experiments.run_folder.read_report", lambda folder: {**report, "accuracy": report["accuracy"] - 1 / 128}
    )
    with pytest.raises(sanp.SanpError, match=r"may differ by 0\.05%; nothing was written"):
        shipping.ship(runs / "pruned", "tiny-22", results=runs / "results", into=weights)
    assert list(weights.iterdir()) == []


def test_a_variance_beyond_half_precision_is_kept(tmp_path: Path) -> None:
    net = tiny_run.Tiny()
    net.features[1].running_var.fill_(1e6)  # type: ignore[operator, union-attr]
    sanp.save(net, tmp_path / "half.safetensors", dtype=torch.float16)
    again = sanp.load(tmp_path / "half.safetensors", tiny_run.Tiny())
    assert again.features[1].running_var.tolist() == [1e6] * 8  # type: ignore[index, operator, union-attr]


def test_a_run_without_a_results_line_is_not_shipped(runs: Path, weights: Path, tmp_path: Path) -> None:
    with pytest.raises(sanp.SanpError, match="has no line in"):
        shipping.ship(runs / "pruned", "tiny-22", results=tmp_path / "none", into=weights)


def test_an_unknown_name_lists_the_known_ones(runs: Path, weights: Path) -> None:
    with pytest.raises(sanp.SanpError, match="'tiny-23': there are none in this installation"):
        sanp.pretrained("tiny-23")
    for run in ("dense", "pruned"):
        shipping.ship(runs / run, f"tiny-{run}", results=runs / "results", into=weights)
    with pytest.raises(sanp.SanpError, match="'tiny-23': there are tiny-dense, tiny-pruned"):
        sanp.pretrained("tiny-23")


def test_commands_take_the_name_of_a_pretrained_network_for_a_run(
    runs: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["sanp", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        assert not exit.value.code
        return capsys.readouterr().out

    report = shipping.ship(runs / "pruned", "tiny-22", results=runs / "results", into=weights)
    assert json.loads(call("eval", "tiny-22", "--json"))["accuracy"] == report.accuracy
    images = Path("image.png")
    from PIL import Image

    Image.fromarray(tiny_run.squares().test.images[0].numpy().transpose(1, 2, 0)).save(images)
    assert json.loads(call("predict", "tiny-22", str(images), "--json"))[0]["label"] in tiny_run.squares().classes
    before = sorted((weights / "tiny-22").iterdir())
    assert "runs/tiny-22/report.html" in call("report", "tiny-22").replace("\n", "")
    assert Path("runs/tiny-22/report.html").is_file()
    assert sorted((weights / "tiny-22").iterdir()) == before  # the package is left as it was


@pytest.mark.parametrize("name", MODULE.names())
def test_every_network_in_the_package_says_what_its_results_line_says(name: str) -> None:
    """The images are random, for want of the data: accuracy is what the report beside it says."""
    folder = MODULE.shipped(name)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (folder / "model.safetensors").stat().st_size < 12e6
    line, report = result_of(name), json.loads((folder / "report.json").read_text())
    assert report["error"] == pytest.approx(line["error"], abs=0.0005)
    assert line in read_results(ROOT / "results" / _file(line))
    found = sanp.evaluate(sanp.pretrained(name), [(torch.randn(8, 3, 32, 32), torch.arange(8))])
    assert found.dense_flops == line["dense_flops"] and (found.kept == 1) == (line["method"] == "dense")


def test_the_package_has_networks() -> None:
    assert {"m_cifarnet-cifar10", "m_cifarnet-cifar10-22", "m_cifarnet-cifar10-dial"} <= set(MODULE.names())


def _file(line: dict[str, Any]) -> str:
    own = f"{line['name'].partition('/')[0]}.jsonl"  # a table's, or the dial's
    return own if (ROOT / "results" / own).exists() else "dense.jsonl"


def test_rows_start_from_a_shipped_dense_network_where_its_line_is_known(weights: Path, tmp_path: Path) -> None:
    tiny_run.write_row(tmp_path)
    (row,) = select(tmp_path, ["table1"])
    reproduce([row], tmp_path / "here", tmp_path / "results")
    (dense,) = (tmp_path / "here").glob("*dense*")
    shipping.ship(dense, "tiny-dense", results=tmp_path / "results", into=weights)
    (tmp_path / "results" / "table1.jsonl").unlink()
    told: list[str] = []
    reproduce([row], tmp_path / "elsewhere", tmp_path / "results", tell=told.append)
    assert told[:2] == ["digits-tiny-dense: in dense.jsonl already", "table1/tiny-sanp: begun"]
    (line,) = read_results(tmp_path / "results" / "table1.jsonl")
    assert line["config"]["pretrained"] == "tiny-dense"
    (tmp_path / "results" / "dense.jsonl").unlink()  # a table wants its dense row: trained, and started from
    reproduce([row], tmp_path / "third", tmp_path / "results", tell=told.append)
    assert "digits-tiny-dense: begun" in told
