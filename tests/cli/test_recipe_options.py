from sanp.cli.recipe_options import all_settings
from tests.cli.conftest import Run


def test_help_explains_every_setting(run: Run) -> None:
    _, out, _ = run("train", "--help")
    for setting in all_settings():
        assert setting.option[:30] in out, setting.name


def test_the_option_of_a_section_s_setting_has_the_section_before_it() -> None:
    options = {(setting.section, setting.name): setting.option for setting in all_settings()}
    assert options["", "batch_size"] == "--batch-size"
    assert options["fit", "spm_lr"] == "--fit.spm-lr"
