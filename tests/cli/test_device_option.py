"""``--device`` of every command that computes: a name that is wrong or not here, and the commands on another device."""

import json
from pathlib import Path

import pytest
from PIL import Image

from sanp.core import devices
from sanp.engine.bench import runtimes
from tests.cli.conftest import Run
from tests.tools import other_device

COMMANDS = (
    ("train",),
    ("eval", "nowhere"),
    ("predict", "nowhere", "x.png"),
    ("report", "nowhere"),
    ("explore", "nowhere"),
    ("export", "nowhere", "x.onnx"),
    ("bench", "nowhere"),
    ("inspect", "m_cifarnet"),
    ("compare", "--paired", "a", "b"),
    ("reproduce", "table1"),
)
TRAIN = ("--backbone", "tiny", "--batch-size", "32", "--epochs", "1,1,1", "--threads", "1", "--fit.precision", "fp32")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_device_that_is_not_here_is_the_first_thing_said(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: False)
    code, _, err = run(*command, "--device", "cuda")
    assert code == 2 and "device cuda is not here" in err and "give auto or cpu" in err
    code, _, err = run(*command, "--device", "gpu")
    assert code == 2 and "gpu" in err and "cuda" in err and len(err.strip().splitlines()) == 1


def test_the_commands_of_a_run_on_another_device(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, image = tmp_path / "run", tmp_path / "grey.png"
    Image.new("RGB", (8, 8), (90, 90, 90)).save(image)
    monkeypatch.setattr(runtimes, "RUNTIMES", {"torch eager": runtimes.RUNTIMES["torch eager"]})
    assert run("train", *TRAIN, "--budget", "60%", "--out", str(folder))[0] == 0
    found = {}
    for device in ("cpu", "mps"):
        with other_device.installed(monkeypatch):
            code, out, err = run("eval", str(folder), "--json", "--device", device)
            assert code == 0, err
            report = json.loads(out)
            code, out, err = run("predict", str(folder), str(image), "--json", "--device", device)
            assert code == 0, err
            prediction = json.loads(out)[0]
            page = tmp_path / f"{device}.html"
            (folder / "study.safetensors").unlink(missing_ok=True)
            code, _, err = run("report", str(folder), "--no-time", "--out", str(page), "--device", device)
            assert code == 0 and page.is_file(), err
            found[device] = [report["accuracy"], report["kept"], prediction["confidence"], prediction["kept"]]
    assert found["mps"] == pytest.approx(found["cpu"], rel=1e-4)
    with other_device.installed(monkeypatch):
        code, out, err = run("bench", str(folder), "--seconds", "0.01", "--pruned", "0.3", "--json", "--device", "mps")
        assert code == 0, err
        code, out, err = run("export", str(folder), str(tmp_path / "x.onnx"), "--device", "mps")
        assert code == 2 and "checked on the CPU" in err
    rows = [row["what"] for row in json.loads((folder / "bench.json").read_text())["rows"]]
    assert rows[-2:] == ["torch on meta", "torch on meta, as it is"]
