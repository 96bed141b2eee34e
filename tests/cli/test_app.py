import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sanp
from sanp.cli import app as cli
from sanp.cli.display import before_and_after
from sanp.experiments.run import Finished
from tests.tools import tiny_run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Calls the command line as a shell would: exit code, output, errors."""
    tiny_run.install(monkeypatch)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanp", *arguments])
        monkeypatch.setattr(cli, "console", cli.Console(width=200))
        code = 0
        try:
            cli.main()
        except SystemExit as exit:
            code = int(exit.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    yield call


TRAIN = ("train", "--backbone", "tiny", "--batch-size", "32", "--threads", "1", "--epochs", "1,1,2", "--budget", "50%")


@pytest.mark.parametrize("cost, told", [(0.63, True), (0.27, False), (None, False)])
def test_a_run_that_left_its_budget_to_the_thresholds_says_so(cost: float | None, told: bool, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "joint", "cost": cost}) + "\n")
    report = SimpleNamespace(accuracy=0.1, flops=1e6, kept=0.25)
    table = before_and_after(Finished(tmp_path, report, report), "25%")  # type: ignore[arg-type]
    assert ("training ended at 63% of the FLOPs" in str(table.caption)) == told


def test_train_then_eval(run: Run, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    code, out, _ = run(*TRAIN, "--out", folder, "--fit.precision", "fp32", "--spm.noise", "0.2")
    assert code == 0
    assert "before" in out and "after" in out and folder in out.replace("\n", "")
    config = sanp.experiments.run_folder.read_run(tmp_path / "run")
    assert (config.fit.pretrain_epochs, config.fit.joint_epochs, config.spm.noise) == (1, 2, 0.2)
    code, out, _ = run("eval", folder, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["accuracy"] == json.loads((tmp_path / "run" / "report.json").read_text())["accuracy"]
    code, out, _ = run("eval", folder)
    assert code == 0 and "features.0" in out


def test_a_recipe_file_with_options_on_top(run: Run, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        'backbone = "tiny"\nbatch_size = 32\nbudget = "60%"\n[fit]\npretrain_epochs = 1\njoint_epochs = 1\n'
    )
    code, _, _ = run(
        "train",
        "--recipe",
        str(tmp_path / "recipe.toml"),
        "--budget",
        "70%",
        "--threads",
        "1",
        "--out",
        str(tmp_path / "r"),
    )
    assert code == 0
    assert sanp.experiments.run_folder.read_run(tmp_path / "r").budget == "70%"


def test_a_method_takes_its_own_settings(run: Run, tmp_path: Path) -> None:
    options = ("--fit.precision", "fp32", "--method", "weight", "--weight.rounds", "2")
    code, _, _ = run(*TRAIN, *options, "--out", str(tmp_path / "run"))
    assert code == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    # three epochs in two rounds: round(1.5) = 2, then the one that is left
    assert [line["stage"] for line in lines] == ["pretrain", "retrain 1", "retrain 1", "retrain 2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "--budget", "35"), "budget '35' cannot be read"),
        (("train", "--budget", "0"), "cannot be read"),
        (("train", "--budget", "150%"), "more than the whole network"),
        (("train", "--backbone", "resnet"), "did you mean resnet18"),
        (("train", "--method", "fbss"), "unknown method 'fbss'"),
        (("train", "--epochs", "many"), "three as 20,1,12"),
        (("train", "--fit.lr", "fast"), "--fit.lr is 'fast': wanted a number"),
        (("train", "--ns.highest", "1"), "settings of method ns, and the method is sanp"),
        (("train", "--spm.per", "pixel"), "choose one of sample, element"),
        (("train", "--recipe", "none.toml"), "cannot read the recipe"),
        (("train", "--resume", "nowhere"), "not a run folder"),
        (("train", "--resume", "nowhere", "--fit.lr", "0.01"), "takes no other option but --threads"),
        (("train", "--resume", "nowhere", "--epochs", "3"), "takes no other option but --threads"),
        (("eval", "nowhere"), "not a run folder"),
        (("data", "get", "cifar11"), "did you mean cifar"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert words in err.replace("\n", " ")
    assert "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_debug_shows_the_traceback(run: Run) -> None:
    with pytest.raises(sanp.SanpError):
        run("--debug", "eval", "nowhere")


def test_version_names_what_a_report_of_a_defect_needs(run: Run) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith(f"sanp {sanp.__version__}, torch {torch.__version__.partition('+')[0]}")


def test_help_explains_every_setting(run: Run) -> None:
    _, out, _ = run("train", "--help")
    for section, name, _ in cli._settings():
        assert f"--{cli._option(section, name)}"[:30] in out, name


def test_data_list_names_the_sets(run: Run) -> None:
    code, out, _ = run("data", "list")
    assert code == 0
    assert all(name in out for name in sanp.data.DATASETS)
