import pytest

from sanp.cli.recipe_options import all_settings
from tests.cli.conftest import Run


def test_all_help_explains_every_setting(run: Run) -> None:
    _, out, _ = run("train", "--help-all")
    for setting in all_settings():
        assert setting.option[:30] in out, setting.name


def test_the_option_of_a_section_s_setting_has_the_section_before_it() -> None:
    options = {(setting.section, setting.name): setting.option for setting in all_settings()}
    assert options["", "batch_size"] == "--batch-size"
    assert options["fit", "spm_lr"] == "--fit.spm-lr"


def test_help_shows_what_most_runs_need_on_two_screens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("train", "--help")
    lines = out.splitlines()
    assert len(lines) <= 2 * 24 and max(map(len, lines)) <= 80
    assert all(f"--{name}" in out for name in ("data", "budget", "epochs", "help-all"))
    assert "--fit.lr" not in out and "--fbs.lasso" not in out
