import re
import warnings
from pathlib import Path

import pytest
import torch
from scripts.cap import table as cap_table
from scripts.dial import table as dial_table
from torch import Tensor, nn

import sanp
from sanp.experiments.documents import filled, study_table
from sanp.experiments.results import read_results
from tests.conftest import SmallNet

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_ten_lines_run_as_they_stand(
    squares_loader: list[tuple[Tensor, Tensor]],
    squares_test: list[tuple[Tensor, Tensor]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sanp.backbones.BACKBONES, "m_cifarnet", SmallNet)
    names = {
        "example_input": squares_loader[0][0][:1],
        "train_loader": [(x, y % 4) for x, y in squares_loader],
        "test_loader": squares_test,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also a teacher that knows nothing
        exec(BLOCKS[0], names)
    report, gated = names["report"], names["gated"]
    assert isinstance(report, sanp.Report) and isinstance(gated, sanp.GatedNetwork)
    assert report.accuracy > 0.97
    assert abs(report.kept - 0.35) < 0.05
    assert sanp.evaluate(gated, squares_test).accuracy == report.accuracy


def test_the_loop_of_one_s_own_reaches_the_budget(squares_loader: list[tuple[Tensor, Tensor]]) -> None:
    gated = sanp.gate(SmallNet(), squares_loader[0][0])
    names = {
        "sanp": sanp,
        "torch": torch,
        "gated": gated,
        "images": squares_loader[0][0],
        "train_loader": 40 * squares_loader,
        "task_loss": nn.functional.cross_entropy,
    }
    exec(BLOCKS[1], names)
    report = sanp.evaluate(gated, squares_loader)
    assert report.accuracy > 0.9
    assert report.kept == pytest.approx(0.35, abs=0.05)


@pytest.mark.parametrize(
    ("document", "study"),
    [("docs/results.md", "budgets"), ("docs/deviations.md", "deviations"), ("docs/methods.md", "methods_digits")],
)
def test_a_table_is_what_the_results_say(document: str, study: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert filled(text, study, study_table(read_results(ROOT / "results" / f"{study}.jsonl"))) == text


def test_every_file_that_the_readme_names_is_there() -> None:
    tree = README.split("src/sanp/\n")[1].split("```")[0]
    named = [name for line in tree.splitlines() for name in re.findall(r"^  (\S+)  ", line)]
    missing = [part for names in named for part in names.split() if not (ROOT / "src" / "sanp" / part).exists()]
    assert missing == []
    for link in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("document", ["README.md", "docs/dial.md"])
def test_the_table_of_the_dial_is_what_its_results_say(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for line in read_results(ROOT / "results" / "dial.jsonl") if line["method"] == "sanp"]
    assert filled(text, "dial", dial_table(lines[-1])) == text


def test_the_table_of_caps_is_what_its_results_say() -> None:
    text = (ROOT / "docs" / "dial.md").read_text(encoding="utf-8")
    assert filled(text, "cap", cap_table(list(read_results(ROOT / "results" / "cap.jsonl"))[-1])) == text


def test_the_shipped_dial_takes_every_budget_of_its_range() -> None:
    network = sanp.pretrained("m_cifarnet-cifar10-dial")
    assert isinstance(network, sanp.GatedNetwork) and network.dial is not None
    levels = []
    for share in (0.2, 0.41, 0.6):
        assert network.set_budget(share) == pytest.approx(share, abs=0.005)
        levels.append(next(iter(network.layers.values())).spm.level)
    assert levels == sorted(levels, reverse=True) and levels[-1] >= 0
