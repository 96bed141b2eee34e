"""``--budget`` of the commands that use a finished run: within the range of a dial, and for a network of one budget."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.conftest import Run

TRAIN = ("--backbone", "tiny", "--batch-size", "32", "--epochs", "2,1,16", "--threads", "1", "--fit.precision", "fp32")


def test_a_range_from_training_to_every_command(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, _, err = run("train", *TRAIN, "--budget", "30%..60%", "--out", str(folder))
    assert code == 0, err
    kept = {}
    for budget in ("30%", "45%", "60%"):
        code, out, err = run("eval", str(folder), "--budget", budget, "--json")
        assert code == 0, err
        kept[budget] = json.loads(out)["kept"]
    assert kept["30%"] < kept["45%"] < kept["60%"]
    assert kept["45%"] == pytest.approx(0.45, abs=0.05)
    Image.new("RGB", (40, 30)).save(tmp_path / "grey.png")
    code, out, err = run("predict", str(folder), str(tmp_path / "grey.png"), "--budget", "60%", "--json")
    assert code == 0 and json.loads(out)[0]["kept"] <= 1, err
    code, _, err = run("eval", str(folder), "--budget", "90%")
    assert code == 2 and "above 30.0% to 60.0%" in err
    code, _, err = run("predict", str(folder), str(tmp_path / "grey.png"), "--budget", "1.2ms")
    assert code == 2 and "has no images to time" in err


def test_a_network_for_one_budget_is_calibrated_or_refused(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run("train", *TRAIN, "--budget", "50%", "--out", str(folder))[0] == 0
    code, out, err = run("eval", str(folder), "--budget", "50%", "--json")
    assert code == 0 and 0.3 < json.loads(out)["kept"] < 0.7, err
    code, _, err = run("eval", str(folder), "--budget", "80%")
    assert code == 2 and 'budget="50%..80%"' in err


def test_a_cap_from_training_to_evaluation(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, _, err = run("train", *TRAIN, "--budget", "50%", "--max-flops", "55%", "--out", str(folder))
    assert code == 0, err
    for options, most in (((), 0.55), (("--max-flops", "40%"), 0.4)):
        code, out, err = run("eval", str(folder), *options, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert max(found["per_sample"]) <= most * found["dense_flops"]
    code, _, err = run("eval", str(folder), "--max-flops", "1.2ms")
    assert code == 2 and "is a time" in err
    code, _, err = run("train", *TRAIN, "--budget", "50%", "--max-flops", "30%", "--out", str(tmp_path / "other"))
    assert code == 2 and "below the budget of 50.0%" in err
