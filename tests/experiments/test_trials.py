"""Trials of settings: as many for every method, on held-out images alone."""

from pathlib import Path

import pytest
import torch
from scripts.trials import RECIPES, read_trials, run_trials, trials_table

from sanp.core.errors import SanpError
from sanp.experiments.compare import Job
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.experiments.results import read_results
from tests.tools import tiny_run

COMMON = (
    'backbone = "tiny"\nbatch_size = 32\nthreads = 1\nbudget = "70%"\nvalidate = 64\nreport_on = "held-out"\n'
    '[fit]\nwarmup_epochs = 1\njoint_epochs = 1\nprecision = "fp32"\n'
)
ROWS = (
    '[[row]]\nmethod = "ns"\nns.sparsity = 1e-4\n[[row]]\nmethod = "random"\n'
    '[[row]]\nmethod = "ns"\nns.sparsity = 1e-2\n[[row]]\nmethod = "random"\nrandom.seed = 1\n'
)


def test_every_method_of_the_repositorys_trials_has_as_many_and_ns_those_of_its_paper() -> None:
    trials = read_trials(RECIPES / "m_cifarnet.toml", Path("dense"))
    assert [trial.own["ns"]["sparsity"] for trial in trials if trial.recipe.method == "ns"] == [1e-4, 1e-3, 1e-2, 1e-5]
    dense = make_recipe(read_recipe(RECIPES / "dense.toml"))
    assert dense.report_on == "held-out" and {trial.recipe.validate for trial in trials} == {dense.validate}


def test_trials_that_are_unfair_or_would_read_the_test_images_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_run.install(monkeypatch)
    path = tmp_path / "trials.toml"
    path.write_text(COMMON + ROWS + '[[row]]\nmethod = "ns"\n')
    with pytest.raises(SanpError, match="ns 3, random 2 trials: give every method the same number"):
        read_trials(path, tmp_path)
    path.write_text(COMMON.replace('report_on = "held-out"\n', "") + ROWS)
    with pytest.raises(SanpError, match="would read the test images"):
        read_trials(path, tmp_path)


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")
def test_a_trial_is_a_line_with_its_settings_and_is_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_run.install(monkeypatch)
    torch.set_num_threads(1)
    path, results = tmp_path / "trials.toml", tmp_path / "trials.jsonl"
    path.write_text(COMMON + ROWS)
    plain = {name: value for name, value in read_recipe(path).items() if name != "row"}
    dense = Job(make_recipe({**plain, "method": "dense", "fit": {"pretrain_epochs": 1}}), tmp_path / "dense")
    for _ in range(2):
        run_trials(read_trials(path, dense.folder / "model.safetensors"), dense, tmp_path, results)
    lines = list(read_results(results))
    assert [line["name"] for line in lines] == ["ns-1", "random-1", "ns-2", "random-2"]
    assert [line["trial"] for line in lines[::2]] == [{"ns": {"sparsity": 1e-4}}, {"ns": {"sparsity": 1e-2}}]
    assert {line["held_out_error"] == line["error"] for line in lines} == {True}
    assert capsys.readouterr().out.count("\n") == 4


def test_the_best_trial_of_each_method_is_marked() -> None:
    def line(method: str, error: float, **own: float) -> dict[str, object]:
        return {"method": method, "error": error, "kept": 0.25, "trial": {method: own} if own else {}}

    table = trials_table([line("ns", 0.2, sparsity=0.1), line("fbs", 0.3), line("ns", 0.1, sparsity=0.2)])
    assert table.splitlines()[2:] == [
        "| fbs | defaults | **30.00** | 25.00 |",
        "| ns | `ns.sparsity = 0.2` | **10.00** | 25.00 |",
        "| ns | `ns.sparsity = 0.1` | 20.00 | 25.00 |",
    ]
