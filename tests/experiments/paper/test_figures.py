import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import sanp
from sanp.cli import app as cli
from sanp.experiments.documents import filled
from sanp.experiments.paper.contents import DRAWN, FIGURES
from sanp.experiments.paper.figures import figure_rows, make_lines
from sanp.experiments.paper.reproduce import reproduce
from sanp.experiments.paper.rows import Scope
from sanp.experiments.paper.tables import latest, readme_table
from sanp.experiments.results import append, read_results
from sanp.report.charts.paper_figures import captioned, paper_charts
from tests.tools import tiny_run

ROOT = Path(__file__).parents[3]
RECIPE = """backbone = "tiny"
batch_size = 32
threads = 1
[fit]
pretrain_epochs = 1
joint_epochs = 1
precision = "fp32"
norm_batches = 2
"""


def _install(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sanp.experiments.table.NAMES, "tiny", "Tiny")
    tiny_run.install(patch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of a made-up table, run."""
    place = tmp_path_factory.mktemp("figures")
    (place / "recipes" / "table1").mkdir(parents=True)
    for method in ("ns", "sanp"):
        recipe = f'method = "{method}"\nbudget = "50%"\n{RECIPE}'
        (place / "recipes" / "table1" / f"tiny-{method}.toml").write_text(recipe)
    with pytest.MonkeyPatch.context() as patch:
        _install(patch)
        rows = figure_rows(place / "recipes", "fig3", rows=["tiny-ns", "tiny-sanp"])
        reproduce(rows, place / "runs", place / "results")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    _install(monkeypatch)
    return Path(shutil.copytree(made, tmp_path / "place"))


def line_of(place: Path, figure: str, name: str) -> Any:
    rows = figure_rows(place / "recipes", figure, rows=[name])
    assert make_lines(figure, rows, place / "runs", place / "results") == 1
    return list(read_results(place / "results" / f"{figure}.jsonl"))[-1]


def report_of(place: Path, name: str) -> Any:
    return json.loads((next((place / "runs").glob(f"table1-{name}-*")) / "report.json").read_text())


def test_figure_1_is_of_the_layers_and_of_the_channels_that_are_left(place: Path) -> None:
    line, report = line_of(place, "fig1", "tiny-ns"), report_of(place, "tiny-ns")
    left = [layer["never"] for layer in report["layers"]][-1]
    assert (len(line["activation"]), {len(row) for row in line["activation"]}) == (4, {left})
    rates, activations = paper_charts(place / "results", ["fig1"]).values()
    assert list(rates.figure.data[0].y) == [1 - layer["kept"] for layer in report["layers"]]
    shown = sorted(activations.figure.data[0].z.ravel().tolist())
    assert shown == sorted(value for row in line["activation"] for value in row)


def test_figure_3_has_the_counts_of_the_report(place: Path) -> None:
    line_of(place, "fig3", "tiny-sanp")
    (chart,) = paper_charts(place / "results", ["fig3"]).values()
    for kind, bars in zip(("never", "sometimes", "always"), chart.figure.data, strict=True):
        assert list(bars.customdata) == [layer[kind] for layer in report_of(place, "tiny-sanp")["layers"]]


def test_figure_4_counts_every_image_once_and_agrees_with_the_report_s_mean(place: Path) -> None:
    line, report = line_of(place, "fig4", "tiny-sanp"), report_of(place, "tiny-sanp")
    block = report["layers"][1:]  # the second convolution has a stride of 2, the third keeps the size
    assert line["block_channels"] == sum(layer["channels"] for layer in block) == 16
    assert sum(line["images_by_computed"]) == 128
    mean = sum(n * images for n, images in zip(line["computed"], line["images_by_computed"], strict=True)) / 128
    assert mean == pytest.approx(sum(layer["kept"] * layer["channels"] for layer in block), rel=1e-9)
    (chart,) = paper_charts(place / "results", ["fig4"]).values()
    assert sum(chart.figure.data[0].y) == pytest.approx(1)


def test_figures_are_made_again_without_the_runs(place: Path) -> None:
    for figure in FIGURES:
        line_of(place, figure, "tiny-sanp")
    before = captioned(paper_charts(place / "results", DRAWN), "figures")
    shutil.rmtree(place / "runs")
    for figure in FIGURES:
        line_of(place, figure, "tiny-sanp")
        assert len(list(read_results(place / "results" / f"{figure}.jsonl"))) == 1
    assert captioned(paper_charts(place / "results", DRAWN), "figures") == before
    assert before.count("![") == 5  # 1a, 1b, 3, 4, and both rows' accuracy against FLOPs


def test_accuracy_against_flops_shows_every_row_and_the_dense_network(place: Path) -> None:
    (chart,) = paper_charts(place / "results", ["trade"]).values()
    before, _, after = chart.figure.data
    lines = list(read_results(place / "results" / "table1.jsonl"))
    assert list(after.x) == [line["flops"] / 1e6 for line in lines]
    assert list(after.y) == [1 - line["error"] for line in lines]
    assert list(before.y) == [1 - lines[0]["dense_error"]]
    assert [text.partition(" ")[0] for text in after.text] == ["NS", "SANP"]


def test_a_whole_run_s_line_stands_before_a_short_one_s(tmp_path: Path) -> None:
    lines = [("a", 256, 1), ("a", None, 2), ("a", 256, 3), ("b", 256, 4), ("b", 256, 5)]
    text = "".join(json.dumps(dict(zip(("name", "images", "error"), line, strict=True))) + "\n" for line in lines)
    (tmp_path / "fig3.jsonl").write_text(text)
    assert [line["error"] for line in latest(read_results(tmp_path / "fig3.jsonl"))] == [2, 5]


def test_a_method_and_a_backbone_that_the_paper_lacks_are_shown_by_their_own_names(place: Path) -> None:
    (line, *_) = read_results(place / "results" / "table1.jsonl")
    for name in ("mine", "mine-too"):
        append(place / "results" / "table1.jsonl", {**line, "name": name, "backbone": "mine", "data": "cifar10"})
    assert "| mine | NS |" in readme_table(place / "results")
    assert "mine" in captioned(paper_charts(place / "results", ["trade"]), "figures")


def test_the_command_draws_what_is_run_and_says_what_runs_the_rest(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drawing itself needs a browser: tests/report/test_browser.py has it."""
    drawn: dict[Path, Any] = {}
    monkeypatch.setattr("sanp.report.figure_files.draw", lambda charts, format: drawn.update(charts))
    monkeypatch.setattr("sanp.cli.reproduce.require", lambda *packages: None)
    monkeypatch.chdir(place)
    page = place / "page.md"
    page.write_text("<!-- tables -->\n<!-- end of tables -->\n<!-- figures -->\n<!-- end of figures -->\n")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanp", "reproduce", *arguments, "--page", "page.md"])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        said = capsys.readouterr()
        return int(exit.value.code or 0), said.out, said.err

    code, out, _ = call("fig3", "--rows", "tiny-sanp")
    assert code == 0 and list(drawn) == [Path("docs/figures/fig3-table1-tiny-sanp.svg")]
    assert "![Figure 3: " in page.read_text() and "](docs/figures/fig3-table1-tiny-sanp.svg)" in page.read_text()
    code, out, err = call("fig4", "--rows", "tiny-sanp", "--limit", "64", "--epochs-scale", "0.5")
    assert code == 2 and "no finished run" in err
    assert "sanp reproduce table1 --rows tiny-sanp --epochs-scale 0.5 --limit 64 --runs runs" in out.replace("\n", " ")
    code, _, err = call("fig2")
    assert code == 2 and "did you mean" in err


def test_the_paper_s_figures_are_of_rows_that_have_recipes() -> None:
    for figure, names in FIGURES.items():
        rows = figure_rows(ROOT / "recipes", figure, scope=Scope(0.1))
        assert {row.name for row in rows} == set(names)


def test_the_results_page_shows_the_figures_of_the_lines_and_they_are_there() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    charts = paper_charts(ROOT / "results", DRAWN)
    assert filled(text, "figures", captioned(charts, "figures")) == text
    assert [name for name in charts if not (ROOT / "docs" / "figures" / f"{name}.svg").is_file()] == []
