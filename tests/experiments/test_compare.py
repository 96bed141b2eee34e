import csv
import importlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sanp.core.checks import is_installed
from sanp.core.errors import SanpError
from sanp.experiments.compare import Job, carry_out, compare, make_plan, read_plan
from sanp.experiments.run_folder import read_report
from sanp.experiments.table import Row, read_rows, to_csv, to_latex, to_markdown, write_table
from tests.tools import tiny_run

FIT = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32", "norm_batches": 2}
SETTINGS = {"backbone": "tiny", "batch_size": 32, "threads": 1, "budget": "50%", "test_every": 0, "fit": FIT}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny backbone and its squares, for one test."""
    tiny_run.install(monkeypatch)


def row(method: str, **settings: object) -> Row:
    plain = Row(
        data="cifar10",
        backbone="m_cifarnet",
        method=method,
        layer_adaptive=method in ("sanp", "ns"),
        sample_adaptive=method in ("sanp", "fbs"),
        error=0.0941,
        flops=39.3e6,
        dense_flops=174.3e6,
        seconds=None,
    )
    return replace(plain, **settings)


ROWS = [row("dense", error=0.0863, flops=174.3e6), row("fbs", flops=44.3e6), row("sanp", flops=39.3e6)]


def test_the_papers_rows_come_out_as_in_the_paper() -> None:
    assert to_markdown(ROWS).splitlines() == [
        "| Backbone | Model | L-a | S-a | Error (%) | FLOPs (M) | Pruned (%) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| M-CifarNet | Unpruned |  |  | 8.63 | 174.3 |  |",
        "| M-CifarNet | FBS |  | ✓ | 9.41 | 44.3 | 74.6 |",
        "| M-CifarNet | SANP | ✓ | ✓ | 9.41 | 39.3 | 77.5 |",
    ]


def test_time_and_data_have_columns_where_they_say_something() -> None:
    rows = [*ROWS, row("sanp", data="cifar100", seconds=0.00123)]
    table = list(csv.reader(io.StringIO(to_csv(rows))))
    assert table[0] == [
        "Data",
        "Backbone",
        "Model",
        "L-a",
        "S-a",
        "Error (%)",
        "FLOPs (M)",
        "Pruned (%)",
        "Seconds/image",
    ]
    assert table[-1] == ["cifar100", "M-CifarNet", "SANP", "yes", "yes", "9.41", "39.3", "77.5", "0.00123"]
    assert table[1][-1] == ""


def test_latex_is_escaped_and_ruled_by_backbone() -> None:
    lines = to_latex([*ROWS, row("ns", backbone="my_net")]).splitlines()
    assert lines[2] == r"Backbone & Model & L-a & S-a & Error (\%) & FLOPs (M) & Pruned (\%) \\"
    assert lines[-3] == r"my\_net & NS & \checkmark &  & 9.41 & 39.3 & 77.5 \\"
    assert lines.count(r"\hline") == 4


def test_the_files_ending_names_the_format(tmp_path: Path) -> None:
    write_table(ROWS, tmp_path / "deep" / "table.tex")
    assert (tmp_path / "deep" / "table.tex").read_text(encoding="utf-8") == to_latex(ROWS)
    with pytest.raises(SanpError, match="unknown kind of table file"):
        write_table(ROWS, tmp_path / "table.doc")


def test_all_rows_start_from_one_dense_network(tiny: None, tmp_path: Path) -> None:
    plan = make_plan({**SETTINGS, "methods": ["l1", "fbs"]}, tmp_path)
    assert [job.folder.name for job in plan.dense] == ["dense-tiny-digits"]
    assert [job.folder.name for job in plan.rows] == ["tiny-digits-l1-50", "tiny-digits-fbs-50"]


def test_a_comparison_trains_what_is_not_finished_and_writes_the_table(tiny: None, tmp_path: Path) -> None:
    plan = make_plan({**SETTINGS, "methods": ["l1", "fbs"]}, tmp_path)
    told: list[str] = []
    rows = compare(plan, tmp_path, tell=told.append)
    assert [row.method for row in rows] == ["dense", "l1", "fbs"]
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == to_markdown(rows)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("report.json")}
    (plan.rows[1].folder / "report.json").unlink()
    (plan.rows[1].folder / "model.safetensors").unlink()
    told.clear()
    assert compare(plan, tmp_path, tell=told.append) == rows  # the row that was lost is trained to the same numbers
    assert told[:2] == ["dense-tiny-digits: finished before", "tiny-digits-l1-50: finished before"]
    assert told[2:] == ["tiny-digits-fbs-50: begun", "tiny-digits-fbs-50: finished"]
    kept = [path for path, time in written.items() if path.stat().st_mtime_ns == time]
    assert len(kept) == 2


def test_a_comparison_in_a_folder_with_other_settings_is_refused(tiny: None, tmp_path: Path) -> None:
    compare(make_plan({**SETTINGS, "methods": ["l1"]}, tmp_path), tmp_path)
    with pytest.raises(SanpError, match="other settings"):
        compare(make_plan({**SETTINGS, "batch_size": 16, "methods": ["l1"]}, tmp_path), tmp_path)


def test_rows_have_settings_of_their_own(tiny: None, tmp_path: Path) -> None:
    rows = [{"method": "ns", "budget": "60%"}, {"method": "ns", "budget": "60%", "seed": 1}]
    plan = make_plan({**SETTINGS, "methods": ["sanp"], "row": rows}, tmp_path)
    assert [job.recipe.budget for job in plan.rows] == ["50%", "60%", "60%"]
    assert [job.folder.name for job in plan.dense] == ["dense-tiny-digits", "dense-tiny-digits-seed1"]
    assert plan.rows[2].recipe.pretrained == str(tmp_path / "dense-tiny-digits-seed1" / "model.safetensors")


def test_rows_from_one_dense_network_must_have_the_same_epochs(tiny: None, tmp_path: Path) -> None:
    longer = [{"method": "ns", "fit": {"joint_epochs": 5}}]
    with pytest.raises(SanpError, match="sanp trains for 2 epochs and ns for 6"):
        make_plan({**SETTINGS, "methods": ["sanp"], "row": longer}, tmp_path)


def test_a_row_takes_its_methods_section_and_the_dense_network_none(tiny: None, tmp_path: Path) -> None:
    given = {**SETTINGS, "methods": ["ns", "cg", "l1"], "ns": {"highest": 0.1}, "cg": {"groups": 2}}
    plan = make_plan({**given, "fit": {**FIT, "dropout": 0.1}}, tmp_path)
    configs = [job.recipe.method_config for job in plan.rows]
    assert (configs[0].highest, configs[1].groups, configs[2]) == (0.1, 2, None)
    assert plan.dense[0].recipe.method_config is None
    assert len(plan.dense) == 1 and plan.dense[0].recipe.fit.dropout == 0.1  # which matters in pretraining
    with pytest.raises(SanpError, match="settings of method ns, and the method is l1"):
        make_plan({**SETTINGS, "row": [{"method": "l1", "ns": {"highest": 0.1}}]}, tmp_path)


def test_a_comparison_without_rows_or_with_an_unknown_method_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SanpError, match="names no row"):
        make_plan({"data": "digits"}, tmp_path)
    with pytest.raises(SanpError, match="unknown method"):
        make_plan({"methods": ["sanpp"]}, tmp_path)
    recipe = tmp_path / "compare.toml"
    recipe.write_text('methods = "sanp"\n', encoding="utf-8")
    with pytest.raises(SanpError, match="write methods ="):
        read_plan(recipe, tmp_path)


def test_a_run_without_a_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('data = "digits"\n', encoding="utf-8")
    with pytest.raises(SanpError, match=r"is not finished \(no report.json\)"):
        read_rows([tmp_path])
    (tmp_path / "report.json").write_text(json.dumps({"error": 0.1}), encoding="utf-8")
    with pytest.raises(SanpError, match=r"report.json is damaged \(it lacks 'accuracy'\)"):
        read_rows([tmp_path])


def test_seconds_are_measured_where_the_engine_runs_the_network(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {**SETTINGS, "methods": ["l1", "rnp", "sanp"]}
    rows = {row.method: row for row in compare(make_plan(methods, tmp_path), tmp_path, timed=True)}
    assert rows["rnp"].seconds is None  # the engine does not know its agent
    assert all(0 < (rows[name].seconds or 0) < 1 for name in ("dense", "l1", "sanp"))
    again = read_rows([tmp_path / f"tiny-digits-{method}-50" for method in ("l1", "rnp", "sanp")])
    assert {row.method: row for row in again} == rows  # one dense row, with one time
    assert "Seconds/image" in (tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()[0]


def carry_out_tiny(job: Job, watch: None = None) -> None:
    """As carry_out, in a process that does not know the tiny backbone yet."""
    tiny_run.install()
    carry_out(job, watch)


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_runs_side_by_side_end_as_one_after_the_other(
    kind: str, tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "ray" and not is_installed("ray"):
        pytest.skip("the extra ray is not installed")
    monkeypatch.setattr("sanp.experiments.pool.is_installed", lambda _: kind == "ray")
    methods = {**SETTINGS, "methods": ["l1", "fbs"]}
    alone = compare(make_plan(methods, tmp_path / "alone"), tmp_path / "alone")
    told: list[str] = []
    monkeypatch.setattr("sanp.experiments.compare.carry_out", carry_out_tiny)
    both = compare(make_plan(methods, tmp_path / "both"), tmp_path / "both", workers=2, tell=told.append)
    assert both == alone and [row.method for row in both] == ["dense", "l1", "fbs"]
    assert sorted(told[2:]) == ["tiny-digits-fbs-50: finished", "tiny-digits-l1-50: finished"]
    told.clear()
    assert compare(make_plan(methods, tmp_path / "both"), tmp_path / "both", workers=2, tell=told.append) == both
    assert all(line.endswith("finished before") for line in told) and len(told) == 3


def test_a_folder_of_its_name_is_not_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "ray").mkdir()
    assert not is_installed("ray")
    (tmp_path / "ray" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert is_installed("ray")


def test_runs_side_by_side_that_fail_are_all_named(tmp_path: Path) -> None:
    missing = {"methods": ["l1", "ns"], "pretrained": str(tmp_path / "missing.safetensors"), "threads": 1}
    told: list[str] = []
    with pytest.raises(SanpError, match="2 of 2 runs did not end"):
        compare(make_plan(missing, tmp_path), tmp_path, workers=2, tell=told.append)
    assert len(told) == 2 and all("missing.safetensors is not a file" in line for line in told)


def test_rows_of_several_seeds_start_from_one_dense_network_and_show_mean_and_deviation(
    tiny: None, tmp_path: Path
) -> None:
    fit = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32"}
    settings = {"backbone": "tiny", "batch_size": 32, "budget": "70%", "methods": ["l1", "random"], "fit": fit}
    plan = make_plan(settings, tmp_path, seeds=3)
    assert [job.folder.name for job in plan.rows[:3]] == [f"tiny-digits-l1-70{end}" for end in ("", "-seed1", "-seed2")]
    assert len(plan.dense) == 1 and len({job.recipe.pretrained for job in plan.rows}) == 1
    rows = compare(plan, tmp_path)
    errors = [1 - read_report(job.folder)["accuracy"] for job in plan.rows[:3]]
    assert [each.method for each in rows] == ["dense", "l1", "random"]
    assert rows[1].errors == pytest.approx(errors) and rows[1].error == pytest.approx(sum(errors) / 3)
    assert read_rows([plan.rows[0].folder, plan.rows[0].folder])[1].errors == ()  # one run is one seed
    with pytest.raises(SanpError, match="seeds 0: give at least 1"):
        make_plan(settings, tmp_path, seeds=0)


def test_the_deviation_and_the_number_of_seeds_are_shown_by_hand_worked_numbers() -> None:
    seeded = row("sanp", error=0.09, errors=(0.08, 0.09, 0.10), deciding=0.0018 * 174.3e6)
    table = to_markdown([*ROWS[:2], seeded]).splitlines()
    assert table[0] == ("| Backbone | Model | L-a | S-a | Error (%) | Seeds | FLOPs (M) | Pruned (%) | Deciding (%) |")
    assert table[3] == "| M-CifarNet | FBS |  | ✓ | 9.41 | 1 | 44.3 | 74.6 |  |"
    assert table[4] == "| M-CifarNet | SANP | ✓ | ✓ | 9.00 ± 1.00 | 3 | 39.3 | 77.5 | 0.18 |"
