import json
from pathlib import Path

import sanp
from tests.cli.conftest import Run

TRAIN = ("train", "--backbone", "tiny", "--batch-size", "32", "--threads", "1", "--epochs", "1,1,2", "--budget", "50%")


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
