import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sanp
from sanp.experiments import metrics
from sanp.experiments.documents import filled
from sanp.experiments.paper.contents import TABLES
from sanp.experiments.paper.pages import check_pages, write_pages
from sanp.experiments.paper.reproduce import reproduce
from sanp.experiments.paper.rows import Scope, select
from sanp.experiments.paper.tables import PAPER, model, readme_table, results_page
from sanp.experiments.results import append, read_results
from tests.tools import tiny_run

ROOT = Path(__file__).parents[3]


def test_every_row_of_the_paper_has_a_recipe_with_its_budget() -> None:
    rows = {row.name: row.recipe for row in select(ROOT / "recipes", TABLES)}
    named = {name for name in PAPER if "/" in name}
    assert named <= rows.keys()
    for name in named:
        recipe, (_, _, pruned) = rows[name], PAPER[name]
        assert recipe.data == ("cifar100" if name.startswith("table2") else "cifar10")
        if recipe.budget.endswith("%") and pruned is not None:
            assert float(recipe.budget.strip("%")) == pytest.approx(100 - pruned, abs=0.05)


def test_a_scope_shortens_epochs_and_images() -> None:
    row = select(ROOT / "recipes", ["table1"], rows=["m_cifarnet-sanp"], scope=Scope(0.2, 10_000))[0]
    fit = row.recipe.fit
    epochs = fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs  # a fifth of 16, 1 and 11
    assert (*epochs, row.recipe.limit) == (3, 1, 2, 10_000)


def test_rows_that_are_not_there_are_refused() -> None:
    with pytest.raises(sanp.SanpError, match="did you mean table1"):
        select(ROOT / "recipes", ["tabel1"])
    with pytest.raises(sanp.SanpError, match="unknown row 'vgg-sanp': did you mean vgg19-sanp"):
        select(ROOT / "recipes", ["table1"], rows=["m_cifarnet-sanp", "vgg-sanp"])
    with pytest.raises(sanp.SanpError, match="no such row"):
        select(ROOT / "recipes", ["table1"], backbone="m_cifarnet", rows=["vgg19-sanp"])
    for scale in (0.0, float("inf"), float("nan")):
        with pytest.raises(sanp.SanpError, match="above 0"):
            select(ROOT / "recipes", ["table1"], scope=Scope(scale))
    with pytest.raises(sanp.SanpError, match="at least one image"):  # and not all of them
        select(ROOT / "recipes", ["table1"], scope=Scope(1, 0))


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # one epoch of a tiny network
def test_rows_share_their_dense_network_and_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sanp.experiments.table.NAMES, "tiny", "Tiny")
    tiny_run.install(monkeypatch)
    for method in ("sanp", "static"):
        tiny_run.write_row(tmp_path / "recipes", method)
    rows = select(tmp_path / "recipes", ["table1"])
    told: list[str] = []
    for _ in range(2):
        reproduce(rows, tmp_path / "runs", tmp_path / "results", tell=told.append)
    begun = [line for line in told if line.endswith("begun")]
    assert begun == ["digits-tiny-dense: begun", "table1/tiny-sanp: begun", "table1/tiny-static: begun"]
    lines = list(read_results(tmp_path / "results" / "table1.jsonl"))
    assert [line["name"] for line in lines] == ["table1/tiny-sanp", "table1/tiny-static"]
    assert lines[0]["dense_error"] == lines[1]["dense_error"]
    page = results_page(tmp_path / "results")
    assert page.count("| Tiny |") == 3  # the dense network once, then two rows


def test_a_dense_network_that_is_not_here_is_trained_again_without_a_second_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the lines came with the code, and the runs did not."""
    tiny_run.install(monkeypatch)
    tiny_run.write_row(tmp_path)
    rows = select(tmp_path, ["table1"])
    reproduce(rows, tmp_path / "here", tmp_path / "results")
    (tmp_path / "results" / "table1.jsonl").unlink()
    told: list[str] = []
    reproduce(rows, tmp_path / "elsewhere", tmp_path / "results", tell=told.append)
    assert told[:2] == ["digits-tiny-dense: begun", "table1/tiny-sanp: begun"]
    assert len(list(read_results(tmp_path / "results" / "dense.jsonl"))) == 1


def test_a_stopped_row_says_that_the_same_command_goes_on_and_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_run.install(monkeypatch)
    tiny_run.write_row(tmp_path)
    rows = select(tmp_path, ["table1"])

    def stop(progress: sanp.training.stage.Progress) -> None:
        if progress.stage == "joint":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(sanp.SanpError, match="stopped in table1/tiny-sanp: the same command goes on from there"):
        reproduce(rows, tmp_path / "runs", tmp_path / "results", watch=stop)
    assert not (tmp_path / "results" / "table1.jsonl").exists()
    reproduce(rows, tmp_path / "runs", tmp_path / "results")
    assert len(list(read_results(tmp_path / "results" / "table1.jsonl"))) == 1


def test_reproduce_killed_after_every_epoch_ends_with_the_same_line_and_the_whole_time(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.tools.killed_reproduce", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["kills"] >= 4  # of five epochs; the last may be over before it is seen
    for name in ("dense", "table1"):
        whole, killed = said[f"whole/{name}"], said[f"killed/{name}"]
        assert {"config", "seed", "epochs", "error", "flops", "paper_flops", "pruned", "versions", "commit"} <= set(
            whole
        )
        differ = {key for key in whole if whole[key] != killed[key]}
        assert differ <= {"seconds", "commit"}  # the code may be committed meanwhile
        assert killed["seconds"] > 0


def test_the_seconds_of_a_run_are_the_sum_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 s up to the epoch's end and 5 s that a kill threw away; then 7 s to a signal; then 3 s."""
    now = [100.0]
    monkeypatch.setattr(metrics, "monotonic", lambda: now[0])

    def step(seconds: float, *, over: bool, watch: metrics.Stopwatch) -> None:
        now[0] += seconds
        values: dict[str, Any] = dict.fromkeys(("epoch", "epochs", "step", "steps", "loss"), 1)
        none: dict[str, Any] = dict.fromkeys(("accuracy", "kept", "target", "cost_weight"))
        watch(sanp.training.stage.Progress(stage="joint", epoch_over=over, **values, **none))

    first = metrics.Stopwatch(tmp_path)
    step(4, over=False, watch=first)
    step(6, over=True, watch=first)
    step(5, over=False, watch=first)
    now[0] += 1000  # killed; nobody ran
    with pytest.raises(sanp.SanpError), metrics.Stopwatch(tmp_path) as second:
        step(7, over=False, watch=second)
        raise sanp.SanpError("stopped")
    now[0] += 1000
    with metrics.Stopwatch(tmp_path):
        now[0] += 3
    assert metrics.seconds_of(tmp_path) == 20
    (tmp_path / metrics.SECONDS_FILE).write_text("soon")
    with pytest.raises(sanp.SanpError, match="damaged"):
        metrics.seconds_of(tmp_path)


def line(name: str, error: float, images: int | None = None, epochs: tuple[int, int, int] = (16, 1, 11)) -> Any:
    """A results line as far as the tables read it; made up."""
    method = name.rpartition("-")[2]
    backbone = "vgg19" if "vgg19" in name else "m_cifarnet"
    share = 1.0 if method == "dense" else 0.25
    flops = {"flops": share * 174.5e6, "paper_flops": share * 174.5e6, "dense_flops": 174.5e6, "pruned": 1 - share}
    run = {"data": "cifar10", "backbone": backbone, "method": method, "seed": 0}
    return {"name": name, "error": error, "images": images, "epochs": list(epochs), **run, **flops}


@pytest.mark.parametrize("end, shown", [("", "SANP"), ("-50", "SANP"), ("-hard-gates", "SANP, hard gates")])
def test_a_row_of_other_settings_says_so(end: str, shown: str) -> None:
    assert model({**line("methods/m_cifarnet-sanp", 0.1), "name": f"methods/m_cifarnet-sanp{end}"}) == shown


def test_a_row_of_other_settings_is_on_the_results_page_and_not_in_the_readme(tmp_path: Path) -> None:
    other = {**line("methods/m_cifarnet-sanp", 0.07), "name": "methods/m_cifarnet-sanp-hard-gates"}
    for found in (line("methods/m_cifarnet-sanp", 0.09), other):
        append(tmp_path / "methods.jsonl", found)
    assert "| 9.00 |" in readme_table(tmp_path) and "| 7.00 |" not in readme_table(tmp_path)
    assert "| M-CifarNet | SANP, hard gates |" in results_page(tmp_path)


def test_tables_have_whole_runs_only_and_say_what_deciding_costs(tmp_path: Path) -> None:
    assert "No run is finished yet" in readme_table(tmp_path)
    append(tmp_path / "dense.jsonl", line("cifar10-vgg19-dense", 0.7, 10_000, (2, 0, 0)))
    append(tmp_path / "dense.jsonl", line("cifar10-m_cifarnet-dense", 0.0812, None, (16, 0, 0)))
    append(tmp_path / "table1.jsonl", line("table1/vgg19-sanp", 0.75, 10_000, (2, 1, 1)))
    append(tmp_path / "table1.jsonl", line("table1/m_cifarnet-sanp", 0.6, 10_000, (1, 1, 1)))
    quick = {"config": {"preset": "quick"}, "overhead_flops": 0.0018 * 174_540_000}
    append(tmp_path / "table1.jsonl", {**line("table1/m_cifarnet-sanp", 0.0899), **quick})
    assert readme_table(tmp_path).splitlines()[2:] == [
        "| M-CifarNet | Unpruned | 8.12 | 1 | 174.5 |  |  | 16 | 8.63 | 174.3 |  |",
        "| M-CifarNet | SANP (ours) | 8.99 | 1 | 43.6 | 75.0 | 0.18 | 16 + 12 | 9.41 | 39.3 | 77.5 |",
    ]
    assert results_page(tmp_path).count("| M-CifarNet | Unpruned |") == 1 and "VGGNet" not in results_page(tmp_path)


def test_a_page_is_filled_at_the_markers_it_has_and_one_without_any_is_refused_first(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(sanp.SanpError, match="cannot read the page"):
        check_pages([page])
    page.write_text("nothing")
    with pytest.raises(sanp.SanpError, match="no place for a table"):
        check_pages([page])
    page.write_text("a\n<!-- cifar10 -->\nold\n<!-- end of cifar10 -->\nb\n")
    check_pages([page])
    write_pages(tmp_path / "results", tmp_path / "recipes", [page])
    assert page.read_text() == filled(
        "a\n<!-- cifar10 -->\n<!-- end of cifar10 -->\nb\n", "cifar10", readme_table(tmp_path)
    )


@pytest.mark.parametrize(
    ("document", "marker", "made"),
    [("docs/results.md", "tables", results_page), ("README.md", "cifar10", readme_table)],
)
def test_a_table_of_the_paper_is_what_the_lines_say(document: str, marker: str, made: Any) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert filled(text, marker, made(ROOT / "results", ROOT / "recipes")) == text
