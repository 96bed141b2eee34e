from sanp.experiments.recipe import PRESETS
from tests.cli.conftest import Run


def test_presets_are_shown_with_what_they_change(run: Run) -> None:
    code, out, _ = run("presets")
    assert code == 0
    assert all(name in out for name in PRESETS)
    assert "quick the defaults" in out and "'pretrain_epochs': 300" in out
