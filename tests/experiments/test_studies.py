"""The rows of the studies of docs/deviations.md: one for every option that the presets have set differently."""

from scripts.study import EPOCHS, SETTING, STEPS, variants

from sanp.experiments.paper.stale import flat_settings
from sanp.experiments.recipe import PRESETS, make_recipe, merge
from sanp.methods import METHODS


def test_every_option_that_the_presets_have_set_differently_is_a_row_of_the_study() -> None:
    rows = variants("deviations")
    left_out = {f"fit.{name}" for name in EPOCHS} | set(STEPS)
    assert {name for name, _ in flat_settings(PRESETS["paper"])} - left_out == rows.keys() - {
        "quick",
        "paper",
        *(method for method in METHODS if method in PRESETS["paper"]),
    }
    paper = dict(flat_settings(make_recipe({"preset": "paper"}).as_dict()))
    quick = dict(flat_settings(make_recipe(SETTING).as_dict()))
    for name, settings in rows.items():
        found = dict(flat_settings(make_recipe(merge(SETTING, settings)).as_dict()))
        changed = {
            option for option in found if option != "preset" and found[option] != quick.get(option, found[option])
        }
        if name == "paper":
            assert all(found[option] == paper[option] for option in paper if option.partition(".")[0] == "spm")
        elif name not in ("quick", "static", "fit.pretrain_lr"):  # the same in both
            assert changed <= {name, "method"}, name
    assert make_recipe(merge(SETTING, rows["static.scales"])).method_config.scales
