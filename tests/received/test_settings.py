"""Recipes and settings with numbers, keys and sizes that nobody wrote in good faith."""

from pathlib import Path

import pytest

import sanp
from sanp.data.digits import read_digits
from sanp.experiments.compare import make_plan
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.gating.amount import Amount, parse_budget
from tests.core.test_files import within

HUGE = 10**400
DIGITS = "9" * 5000
DEEP = 100_000


@pytest.mark.parametrize(
    "budget",
    ["1e999999M", "1e9999999999999999999%", "1e-999999M", HUGE, -HUGE, 10**5000, f"{DIGITS}M", f"{DIGITS}%",
     f"0.{DIGITS}x", Amount(float("nan"), "share"), Amount(2.0, "share"), Amount(1.0, "x")],  # type: ignore[arg-type]
    ids=range(12),
)  # fmt: skip
def test_a_budget_of_any_size_is_read_or_refused_in_one_line(budget: object) -> None:
    with pytest.raises(sanp.SanpError, match="wanted: a share") as found:
        parse_budget(budget)
    assert len(str(found.value)) < 400


RECIPES = {
    "many digits": f"seed = {DIGITS}",
    "hexadecimal": f"seed = 0x{'f' * 5000}",
    "deep lists": "data = " + "[" * DEEP + "]" * DEEP,
    "deep tables": "data = " + "{a=" * DEEP + "1" + "}" * DEEP,
    "a large setting": f"[fit]\nlr = {HUGE}",
    "a large count": f"[fit]\njoint_epochs = {HUGE}",
    "a large batch": f"batch_size = 0x{'f' * 5000}",
    "a large format": f"format = 0x{'f' * 5000}",
    "a large size": f"image_size = {HUGE}",
    "infinite": "[fit]\nlr = inf",
    "not a number": "[controller]\nstrength = nan",
    "a number for text": f"data = 0x{'f' * 5000}",
    "a number for a name": f"preset = 0x{'f' * 5000}",
    "a number for a method": f"method = 0x{'f' * 5000}",
    "a number for a section": f"fit = 0x{'f' * 5000}",
    "a long name": f'backbone = "{"b" * 100000}"',
}


@pytest.mark.parametrize("text", RECIPES.values(), ids=RECIPES)
def test_a_recipe_with_a_strange_number_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with within(20), pytest.raises(sanp.SanpError) as found:
        make_recipe(read_recipe(path), "recipe.toml")
    assert 10 < len(str(found.value)) < 600


@pytest.mark.parametrize("setting", ["most", "noise", "bias", "centre", "slope"])
def test_a_setting_that_single_precision_cannot_hold_is_refused(setting: str) -> None:
    with pytest.raises(sanp.SanpError, match=f"{setting} is 1e.300: give a number of at most"):
        sanp.SPMConfig(**{setting: 1e300})


def test_digits_larger_than_the_memory_are_refused_at_once() -> None:
    with within(5), pytest.raises(sanp.SanpError, match=r"size is 4096.*give at most 256"):
        read_digits(size=4096)


@pytest.mark.parametrize("text", ["a." * 30_000 + "a = 1", "[" + "a." * 30_000 + "a]", "x = {" + "a." * 9000 + "a=1}"])
def test_a_key_of_many_dotted_parts_is_refused_before_it_fills_the_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with within(5), pytest.raises(sanp.SanpError, match="more than 500 dots"):
        read_recipe(path)


def test_a_recipe_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("#\n" * 500_000)
    with pytest.raises(sanp.SanpError, match="1000000 bytes, more than 65536"):
        read_recipe(path)


def test_a_comparison_makes_no_folder_outside_its_own(tmp_path: Path) -> None:
    plan = make_plan({"methods": ["ns"], "backbone": "../../x:y", "budget": "60%\n"}, tmp_path / "out")
    for job in (*plan.dense, *plan.rows):
        assert job.folder.parent == tmp_path / "out"
        assert job.folder.name.isprintable()
    assert plan.rows[0].folder.name == "-..-x-y-digits-ns-60%-"


@pytest.mark.parametrize("seeds", [0, -1, 10**9])
def test_seeds_that_nobody_can_run_are_refused_at_once(tmp_path: Path, seeds: int) -> None:
    with within(5), pytest.raises(sanp.SanpError, match="give at least 1, at most 1000"):
        make_plan({"methods": ["ns"]}, tmp_path, seeds=seeds)
