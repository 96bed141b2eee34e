import tomllib
from pathlib import Path

import pytest

import sanp
from sanp.experiments.recipe import PRESETS, Recipe, make_recipe, merge, read_recipe, sections
from sanp.methods import METHODS, config_of

ROOT = Path(__file__).parents[2]
# Those in trials/ are several recipes in one, which test_trials.py reads.
RECIPES = sorted(path for path in (ROOT / "recipes").glob("**/*.toml") if path.parent.name != "trials")


def test_the_paper_preset_follows_the_text() -> None:
    paper = make_recipe({"preset": "paper"})
    assert paper.batch_size == 256  # 4.1.2
    assert (paper.fit.lr, paper.fit.schedule, paper.fit.step_epochs) == (0.1, "step", 100)
    assert (paper.controller.strength, paper.controller.lowest, paper.controller.highest) == (0.01, -0.01, 0.01)
    assert (paper.spm.bias, paper.spm.noise, paper.spm.soft_share) == (None, 1.0, 0.5)  # eq. 6, 3.3
    assert paper.spm.most is None  # eq. 3
    assert (paper.objective.penalty, paper.objective.runaway, paper.objective.reopen) == ("saliency", 0.0, False)
    assert (paper.fit.distill, paper.fit.calibrate_images, paper.fit.settle) == (0.0, 0, 0.0)


def test_settings_come_on_top_of_the_preset_and_sections_are_merged() -> None:
    recipe = make_recipe({"preset": "paper", "fit": {"joint_epochs": 2}, "spm": {"noise": 0.5}})
    assert recipe.fit.joint_epochs == 2 and recipe.fit.lr == 0.1
    assert recipe.spm.noise == 0.5 and recipe.spm.bias is None
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_every_method_with_settings_has_a_section() -> None:
    configs = {name: config_of(name) for name in METHODS if config_of(name) is not None}
    assert {"ns", "cg", "fbs"} <= configs.keys() <= sections().keys()
    assert {name: sections()[name] for name in configs} == configs
    recipe = make_recipe({"method": "cg", "cg": {"groups": 8}})
    assert recipe.pruning_method() == sanp.methods.method_named("cg", configs["cg"](groups=8))
    assert make_recipe({"method": "l1"}).pruning_method() == sanp.methods.METHODS["l1"]


def test_a_file_holds_the_settings_of_its_own_method_only() -> None:
    recipe = make_recipe({"method": "ns", "ns": {"sparsity": 1e-3}})
    settings = tomllib.loads(recipe.as_toml())
    assert settings["ns"] == {"sparsity": 1e-3, "highest": 1e-2, "sparse_share": 0.5, "scratch": False}
    assert METHODS.keys() & settings.keys() == METHODS.keys() & recipe.as_dict().keys() == {"ns"}
    assert make_recipe(settings) == recipe


def test_every_difference_between_the_presets_is_documented() -> None:
    text = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    for section, settings in PRESETS["paper"].items():
        for name in settings if isinstance(settings, dict) else [section]:
            assert f"`{name}`" in text, name


@pytest.mark.parametrize("path", RECIPES, ids=str)
def test_every_recipe_in_the_repository_is_valid(path: Path) -> None:
    assert isinstance(make_recipe(read_recipe(path), str(path)), Recipe)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "quik"}, "did you mean quick"),
        ({"backbone": "vgg"}, "did you mean vgg19"),
        ({"method": "sanpp"}, "did you mean sanp"),
        ({"budget": "35"}, "cannot be read"),
        ({"batch_size": 1}, "at least 2 images"),
        ({"threads": 0}, "at least 1"),
        ({"fit": {"lr": 0.0}}, "more than 0"),
        ({"fit": {"joint_epochs": -1}}, "0 or more"),
        ({"spm": {"soft_share": 1.5}}, "soft_share"),
        ({"method": "weight", "weight": {"rounds": 0}}, "at least 1"),
        ({"method": "l1", "ns": {"sparsity": 1e-3}}, "settings of method ns, and the method is l1"),
        ({"ns": {}}, "the method is sanp: leave section ns out"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(sanp.SanpError, match=words):
        make_recipe(settings)


def test_a_recipe_that_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("data = digits")
    with pytest.raises(sanp.SanpError, match=r"bad\.toml is not a TOML file"):
        read_recipe(tmp_path / "bad.toml")
    with pytest.raises(sanp.SanpError, match="cannot read"):
        read_recipe(tmp_path / "none.toml")
