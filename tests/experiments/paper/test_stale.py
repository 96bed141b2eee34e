"""Rows that fail, lines that are stale, and rows of several seeds."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sanp
from sanp.experiments import run_folder
from sanp.experiments.paper.deciding import deciding_flops
from sanp.experiments.paper.reproduce import reproduce
from sanp.experiments.paper.rows import row_folder, select
from sanp.experiments.paper.stale import BESIDES, USED, changed, flat_settings
from sanp.experiments.paper.tables import readme_table, results_page
from sanp.experiments.recipe import make_recipe, merge
from sanp.experiments.results import append, read_results
from sanp.experiments.run import train
from tests.cli.conftest import Run, run
from tests.tools import tiny_run

__all__ = ["run"]  # the fixture
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # one epoch of a tiny network


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sanp.experiments.table.NAMES, "tiny", "Tiny")
    tiny_run.install(monkeypatch)
    for method in ("l1", "random", "sanp"):
        tiny_run.write_row(tmp_path / "recipes", method)
    return tmp_path / "recipes"


def rewrite(recipes: Path, method: str, old: str, new: str) -> None:
    path = recipes / "table1" / f"tiny-{method}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_after_a_row_that_fails_the_next_goes_on_and_the_command_fails_at_the_end(
    recipes: Path, tmp_path: Path, run: Run
) -> None:
    rewrite(recipes, "random", "60%", "1%")  # less than one channel in each layer
    page = tmp_path / "page.md"
    page.write_text("<!-- tables -->\n<!-- end of tables -->\n")
    places = [("--recipes", recipes), ("--runs", tmp_path / "runs"), ("--results", tmp_path / "results")]
    options = [str(part) for pair in (*places, ("--page", page)) for part in pair]
    code, out, err = run("reproduce", "table1", *options)
    assert code != 0 and "1 of 3 rows failed: table1/tiny-random:" in err.replace("\n", " ")
    assert "table1/tiny-random: failed:" in out.replace("\n", "")
    assert [line["name"] for line in read_results(tmp_path / "results" / "table1.jsonl")] == [
        "table1/tiny-l1",
        "table1/tiny-sanp",
    ]
    assert page.read_text().count("| Tiny |") == 3  # the dense network and the two rows

    rewrite(recipes, "random", "1%", "60%")
    code, out, _ = run("reproduce", "table1", *options)
    assert code == 0 and "table1/tiny-l1: in table1.jsonl already" in out
    assert page.read_text().count("| Tiny |") == 4


def test_rows_of_a_dense_network_that_fails_fail_with_it_once(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def fails(job: Any, watch: Any) -> None:
        tried.append(job.folder)
        raise RuntimeError("no memory")

    monkeypatch.setattr("sanp.experiments.paper.reproduce.carry_out", fails)
    failed = reproduce(select(recipes, ["table1"]), tmp_path / "runs", tmp_path / "results")
    assert len(tried) == 1 and len(failed) == 3
    assert failed[0] == "table1/tiny-l1: RuntimeError: no memory"
    assert failed[2] == "table1/tiny-sanp: its dense network failed (no memory)"


def test_a_line_of_other_settings_is_stale_is_marked_and_is_run_again_only_if_asked(
    recipes: Path, tmp_path: Path
) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"

    def told(**how: Any) -> str:
        said: list[str] = []
        assert reproduce(select(recipes, ["table1"]), runs, results, tell=said.append, **how) == []
        return "\n".join(said)

    told()
    rewrite(recipes, "sanp", "[fit]", "[spm]\nnoise = 0.2\n[fit]")
    assert (
        told().splitlines()[-1]
        == "table1/tiny-sanp: stale in table1.jsonl (--stale runs it again): spm.noise 0.1, now 0.2"
    )
    assert len(list(read_results(results / "table1.jsonl"))) == 3
    assert "| Tiny | SANP (ours) † |" in results_page(results, recipes)
    assert "- table1/tiny-sanp: spm.noise 0.1, now 0.2" in results_page(results, recipes)
    assert "†" not in results_page(results)  # without recipes nothing can be told

    assert "table1/tiny-sanp: begun" in told(run="stale")
    lines = list(read_results(results / "table1.jsonl"))
    assert [line["config"]["spm"]["noise"] for line in lines if line["method"] == "sanp"] == [0.1, 0.2]
    assert "stale" not in told() and "begun" not in told(run="stale")
    page = results_page(results, recipes)
    assert "†" not in page and page.count("| Tiny | SANP (ours) |") == 1  # the new line, not the stale one
    before, after = (runs / f"table1-tiny-sanp-1.1.1{end}" for end in ("", "-2"))
    assert run_folder.read_run(before).spm.noise == 0.1 and run_folder.read_run(after).spm.noise == 0.2


def test_the_dense_network_of_all_seeds_is_one_and_the_table_has_mean_and_deviation(
    recipes: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    rows = select(recipes, ["table1"], rows=["tiny-l1"], seeds=3)
    reproduce(rows, tmp_path / "runs", tmp_path / "results", tell=said.append)
    assert sum(line.startswith("digits-tiny-dense: begun") for line in said) == 1
    lines = list(read_results(tmp_path / "results" / "table1.jsonl"))
    assert [line["seed"] for line in lines] == [0, 1, 2]
    assert len({line["dense_error"] for line in lines}) == 1
    assert row_folder(tmp_path / "runs", rows[1].name, rows[1].recipe).name == "table1-tiny-l1-1.1.1-seed1"
    with pytest.raises(sanp.SanpError, match="seeds 0: give at least 1"):
        select(recipes, ["table1"], seeds=0)

    file = tmp_path / "made-up" / "table1.jsonl"
    for line, error in zip(lines, (0.08, 0.09, 0.1), strict=True):
        append(file, {**line, "error": error, "data": "cifar10"})
    # The deviation of 8, 9 and 10 is 1 (n - 1 = 2).
    assert "| 9.00 ± 1.00 | 3 |" in results_page(file.parent)
    assert "| 9.00 ± 1.00 | 3 |" in readme_table(file.parent)


def test_every_published_line_is_compared_with_its_recipe() -> None:
    """The rows that were made before the present gradient and bounds of λ, by their settings."""
    rows = {row.name: row.recipe for row in select(ROOT / "recipes", ["methods"])}
    config = {
        "data": "cifar10",
        "budget": "25%",
        "fit": {"dropout": 0.0, "settle": 0.3},
        "controller": {"lowest": -3.0, "highest": 10.0},
    }
    sanp_row, fbs = rows["methods/m_cifarnet-sanp"], rows["methods/m_cifarnet-fbs"]
    assert changed({**config, "method": "fbs"}, fbs) == []  # it has neither λ nor noise
    assert changed({**config, "method": "fbs", "fit": {"spm_lr": 1.0}}, fbs)[1:] == ["fit.spm_lr 1.0, now none"]
    assert changed({**config, "method": "sanp"}, fbs) == ["method sanp, now fbs"]
    assert changed(merge(config, {"spm": {"most": 8.0}}), sanp_row) == [
        "controller.highest 10.0, now 4.0",
        "controller.lowest -3.0, now -2.0",
        "fit.settle 0.3, now none",
        "spm.gradient product without the noise, now product",
    ]
    whole = sanp_row.as_dict()
    assert changed({**whole, "threads": 7, "pretrained": "x", "seed": 5, "limit": 3}, sanp_row) == []
    assert changed({**whole, "validate": 5000}, sanp_row) == ["validate 5000, now none"]
    assert changed(json.loads(json.dumps(whole)), sanp_row) == []


OTHERWISE: dict[str, dict[str, Any]] = {
    "spm": {
        **{"noise": 0.5, "soft_share": 0.9, "per": "element", "gradient": "literal", "slope": 1.4, "shift": 0.3},
        **{"keep_one": False, "most": 3.0, "standardize": False, "bias": 0.7, "reduction": 2, "centre": 1.0},
    },
    "objective": {"penalty": "saliency", "reopen": False, "runaway": 0.0},
    "controller": {"strength": 1.0, "lowest": -9.0, "highest": 9.0, "memory": 0.1, "estimate": "drawn", "anneal": 0.2},
    "fit": {"settle": 0.7, "warmup_trains": "all but kernels", "spm_lr": 0.1, "spm_optimizer": "sgd"},
}
"""other values of settings that not every method uses"""


@pytest.mark.parametrize("method", sorted((USED.keys() | BESIDES.keys()) - {"dense"}))
def test_settings_that_are_said_to_have_no_effect_have_none(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_run.install(monkeypatch)
    dense = tiny_run.recipe(method="dense", budget="100%", fit={"pretrain_epochs": 1, "precision": "fp32"})
    start = str(train(dense, tmp_path / "dense").folder / "model.safetensors")
    usual = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32", "norm_batches": 2}
    recipe = tiny_run.recipe(method=method, budget="70%", pretrained=start, fit=usual)
    same: dict[str, Any] = {"test_every": 0}
    for section, values in OTHERWISE.items():
        for name, value in values.items():
            if not changed(merge(recipe.as_dict(), {section: {name: value}}), recipe):
                same = merge(same, {section: {name: value}})
    other = make_recipe(merge(recipe.as_dict(), same))
    assert len(dict(flat_settings(same))) > 4 and changed(other.as_dict(), recipe) == []
    first, second = (train(each, tmp_path / name) for each, name in ((recipe, "a"), (other, "b")))
    assert first.pruned.as_dict() == second.pruned.as_dict()


def test_a_setting_is_no_reason_for_a_method_that_does_not_use_it() -> None:
    """STATIC without a scale has no gradient of one; with one it has. FIXED K draws no gates and has no λ."""
    old = {"spm": {"gradient": "literal", "noise": 0.7}, "controller": {"highest": 9.0, "anneal": 0.1}}
    reasons = {}
    for method in ("static", "fixed_k", "sanp", "fbs"):
        recipe = make_recipe({"method": method})
        reasons[method] = [reason.partition(" ")[0] for reason in changed(merge(recipe.as_dict(), old), recipe)]
    assert reasons["static"] == ["controller.anneal", "controller.highest", "spm.noise"]
    assert reasons["fixed_k"] == ["controller.anneal"]
    assert reasons["sanp"] == ["controller.anneal", "controller.highest", "spm.gradient", "spm.noise"]
    assert reasons["fbs"] == []
    scaled = make_recipe({"method": "static", "static": {"scales": True}})
    assert changed(merge(scaled.as_dict(), {"spm": {"gradient": "literal"}}), scaled) == [
        "spm.gradient literal, now product"
    ]


def test_what_deciding_costs_follows_from_the_settings() -> None:
    """SANP on M-CifarNet by hand: the mean of every input channel, then C_out / 4 times C_in and C_out."""
    channels = [3, 64, 64, 128, 128, 128, 192, 192, 192]
    pixels = [32 * 32, 30 * 30, 30 * 30, 15 * 15, 15 * 15, 15 * 15, 8 * 8, 8 * 8]
    means = sum(area * inputs for area, inputs in zip(pixels, channels, strict=False))
    layers = sum(out // 4 * (inputs + out) for inputs, out in pairwise(channels))
    config = make_recipe({"data": "cifar10"}).as_dict()
    assert deciding_flops({"config": config}) == means + layers == 307_120  # 0.18 % of 174.5 M
    assert deciding_flops({"config": {**config, "method": "ns"}}) == 0
    assert deciding_flops({"overhead_flops": 7}) == 7
    assert deciding_flops({}) is None


def test_a_folder_of_other_settings_is_not_taken_for_the_rows_own(recipes: Path, tmp_path: Path) -> None:
    (row,) = select(recipes, ["table1"], rows=["tiny-l1"])
    folder = row_folder(tmp_path, row.name, row.recipe)
    folder.mkdir()
    (folder / "config.toml").write_text(replace(row.recipe, threads=2, test_every=0).as_toml())
    assert row_folder(tmp_path, row.name, row.recipe) == folder
    (folder / "config.toml").write_text(replace(row.recipe, budget="61%").as_toml())
    assert row_folder(tmp_path, row.name, row.recipe).name == f"{folder.name}-2"


def test_the_papers_own_settings_are_rows_that_say_how_far_they_are_scaled(tmp_path: Path) -> None:
    names = ["m_cifarnet-sanp-paper", "m_cifarnet-sanp-paper-sum"]
    total, mean = (row.recipe for row in select(ROOT / "recipes", ["methods"], rows=names))
    assert [each.controller.strength for each in (mean, total)] == [0.01, 256 * 0.01]
    assert (total.controller.lowest, total.controller.highest) == (-2.56, 2.56)
    assert changed(mean.as_dict(), total) == [
        f"controller.{name}, now {value}"
        for name, value in (("highest 0.01", 2.56), ("lowest -0.01", -2.56), ("strength 0.01", 2.56))
    ]
    fit = mean.fit
    assert (fit.warmup_epochs, fit.joint_epochs, fit.step_epochs) == (1, 3, 1)  # a hundredth
    line = {
        **{"name": "methods/m_cifarnet-sanp-paper", "method": "sanp", "backbone": "m_cifarnet", "data": "cifar10"},
        **{
            "seed": 0,
            "images": None,
            "epochs": [fit.pretrain_epochs, 1, 3],
            "error": 0.5,
            "pruned": 0.5,
            "overhead_flops": 0,
        },
        **{"flops": 5e7, "paper_flops": 5e7, "dense_flops": 1e8, "config": mean.as_dict()},
    }
    append(tmp_path / "methods.jsonl", line)
    page = results_page(tmp_path, ROOT / "recipes")
    assert "| M-CifarNet | SANP, the paper's settings, λ0 = 0.01 |" in page
    assert "| 16 + 4 (scaled by 0.01) |" in page and "†" not in page


def test_a_row_that_names_its_network_starts_from_that_and_trains_no_dense_one(recipes: Path, tmp_path: Path) -> None:
    """As the rows with the paper's own settings do, whose preset would pretrain for 300 epochs."""
    dense = tiny_run.recipe(method="dense", budget="100%", fit={"pretrain_epochs": 2, "precision": "fp32"})
    start = train(dense, tmp_path / "given").folder / "model.safetensors"
    rewrite(recipes, "l1", 'backbone = "tiny"', f'backbone = "tiny"\npretrained = "{start}"')
    said: list[str] = []
    rows = select(recipes, ["table1"], rows=["tiny-l1"], seeds=2)
    assert rows[0].dense is None
    for _ in range(2):
        assert reproduce(rows, tmp_path / "runs", tmp_path / "results", tell=said.append) == []
    begun = [line for line in said if line.endswith("begun")]
    assert begun == ["table1/tiny-l1: begun", "table1/tiny-l1 (seed 1): begun"]
    assert said[-1] == "table1/tiny-l1 (seed 1): in table1.jsonl already"
    assert not (tmp_path / "results" / "dense.jsonl").exists()
    (row,) = select(ROOT / "recipes", ["methods"], rows=["m_cifarnet-sanp-paper"])
    assert row.dense is None and row.recipe.pretrained == "m_cifarnet-cifar10"


def test_a_line_has_the_number_of_trials_of_its_method_and_the_table_shows_it(recipes: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for method in ("l1", "ns", "l1", "l1"):
        append(results / "trials.jsonl", {"name": f"{method}-1", "method": method})
    reproduce(select(recipes, ["table1"]), tmp_path / "runs", results)
    lines = {line["method"]: line["trials"] for line in read_results(results / "table1.jsonl")}
    assert lines == {"l1": 3, "random": 0, "sanp": 0}
    page = results_page(results, recipes).splitlines()
    heading, row = (line.split("|") for line in page if "| Model |" in line or "L1-norm" in line)
    assert row[heading.index(" Trials ")] == " 3 "


def test_a_recipe_that_cannot_be_read_is_a_row_that_fails(recipes: Path, tmp_path: Path, run: Run) -> None:
    rewrite(recipes, "random", 'method = "random"', 'method = "rando"')
    page = tmp_path / "page.md"
    page.write_text("<!-- tables -->\n<!-- end of tables -->\n")
    places = [("--recipes", recipes), ("--runs", tmp_path / "runs"), ("--results", tmp_path / "results")]
    options = [str(part) for pair in (*places, ("--page", page)) for part in pair]
    code, out, err = run("reproduce", "table1", *options)
    said = err.replace("\n", " ")
    assert code != 0 and "1 of 3 rows failed: table1/tiny-random: unknown method 'rando'" in said
    assert "table1/tiny-random: unknown method" in out.replace("\n", "")
    assert page.read_text().count("| Tiny |") == 3  # the dense network and the two rows
    code, out, _ = run("reproduce", "table1", "--rows", "tiny-l1", *options)
    assert code == 0
