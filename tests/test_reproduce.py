from pathlib import Path

import pytest

import sanp
from sanp.reproduce import PAPER, TABLES, Scope, reproduce, results_page, select
from sanp.results import filled, read
from tests import tiny_run

ROOT = Path(__file__).parents[1]


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
    row = select(ROOT / "recipes", ["table1"], rows=["m_cifarnet-sanp"], scope=Scope(0.05, 10_000))[0]
    fit = row.recipe.fit
    assert (fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs, row.recipe.limit) == (2, 1, 1, 10_000)


def test_rows_that_are_not_there_are_refused() -> None:
    with pytest.raises(sanp.SanpError, match="did you mean table1"):
        select(ROOT / "recipes", ["tabel1"])
    with pytest.raises(sanp.SanpError, match="no such row"):
        select(ROOT / "recipes", ["table1"], rows=["nothing"])
    with pytest.raises(sanp.SanpError, match="above 0"):
        select(ROOT / "recipes", ["table1"], scope=Scope(0))


def test_rows_share_their_dense_network_and_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sanp.run.build", None)
    monkeypatch.setattr("sanp.run.load_data", None)
    monkeypatch.setitem(sanp.backbones.BACKBONES, "tiny", tiny_run.Tiny)
    monkeypatch.setitem(sanp.reproduce.NAMES, "tiny", "Tiny")
    tiny_run.install()
    (tmp_path / "recipes" / "table1").mkdir(parents=True)
    for method in ("sanp", "static"):
        (tmp_path / "recipes" / "table1" / f"tiny-{method}.toml").write_text(
            f'backbone = "tiny"\nbatch_size = 32\nthreads = 1\nbudget = "60%"\nmethod = "{method}"\n'
            "[fit]\npretrain_epochs = 1\njoint_epochs = 1\n"
        )
    rows = select(tmp_path / "recipes", ["table1"])
    told: list[str] = []
    for _ in range(2):
        reproduce(rows, tmp_path / "runs", tmp_path / "results", tell=told.append)
    begun = [line for line in told if line.endswith("begun")]
    assert begun == ["digits-tiny-dense: begun", "table1/tiny-sanp: begun", "table1/tiny-static: begun"]
    lines = list(read(tmp_path / "results" / "table1.jsonl"))
    assert [line["name"] for line in lines] == ["table1/tiny-sanp", "table1/tiny-static"]
    assert lines[0]["dense_error"] == lines[1]["dense_error"]
    page = results_page(tmp_path / "results")
    assert page.count("| Tiny |") == 3  # the dense network once, then two rows


def test_the_results_page_is_what_the_lines_say() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert filled(text, "tables", results_page(ROOT / "results")) == text
