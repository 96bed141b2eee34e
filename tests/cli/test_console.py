"""Names that hold markup of rich or codes for the terminal are printed as text."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from rich.table import Table

from sanp.cli.console import make_console, plain, plain_lines
from sanp.experiments.run import train
from tests.cli.conftest import Run
from tests.tools import tiny_run

ESCAPE = "\x1b[31m\x1b]0;title\x07"
NAMES = ["[/]", "[red]stop", f"a{ESCAPE}b", ":smile:", "two\nlines", "\u202etxt", "\udcff"]


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a short run."""
    tiny_run.install(monkeypatch)
    fit = {"pretrain_epochs": 1, "warmup_epochs": 0, "joint_epochs": 1, "precision": "fp32", "norm_batches": 1}
    return train(tiny_run.recipe(fit=fit), tmp_path / "run").folder


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_printed_as_text(name: str) -> None:
    table = Table("name", title=plain(name))
    table.add_row(plain(name))
    console = make_console()
    console.file = io.StringIO()
    console.print(table)
    console.print(plain(name))
    written = console.file.getvalue()
    assert "\x1b" not in written and "\x07" not in written
    assert written.encode("utf-8")
    assert plain(name).split()[0] in written


def test_what_cannot_be_printed_is_written_out() -> None:
    assert plain("a\x1b[31m\n\tλ[b]") == r"a\x1b[31m\n\tλ[b]"
    assert plain_lines("a\n\x1bb\n") == "a\n\\x1bb\n"


@pytest.mark.parametrize("name", ["[/]", "[red]stop", f"a{ESCAPE}b"])
def test_a_class_of_any_name_can_be_predicted(finished: Path, run: Run, name: str) -> None:
    inputs = {"image_size": 8, "mean": [0.4] * 3, "std": [0.1] * 3, "classes": [name] * 4}
    (finished / "inputs.json").write_text(json.dumps(inputs))
    image = finished.parent / "i[b].png"
    Image.new("RGB", (8, 8)).save(image)
    code, out, err = run("predict", str(finished), str(image))
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert plain(name)[:5] in out


@pytest.mark.parametrize("name", ["o[/y]", "o[red]y", f"o{ESCAPE}y"])
def test_a_folder_of_any_name_can_be_trained_in_and_evaluated(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tiny_run.install(monkeypatch)
    folder = tmp_path / name
    code, out, err = run("train", "--backbone", "tiny", "--epochs", "1,0,1", "--batch-size", "32", "--out", str(folder))
    assert code == 0, err
    assert plain(name) in out.replace("\n", "") and "\x1b" not in out
    code, out, err = run("eval", str(folder) + "x")
    assert code == 2
    assert plain(name) in err and "\x1b" not in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "x" * 5000),
        ("predict", "x" * 5000, "y" * 5000),
        ("train", "--recipe", "x" * 5000),
        ("train", "--resume", "x" * 5000),
        ("train", "--out", "x" * 5000),
        ("train", "--data", "imagefolder:" + "x" * 5000),
        ("train", "--data", "imagefolder:~nosuchuser/x"),
        ("train", "--data", "[/]"),
        ("train", "--method", f"{ESCAPE}"),
        ("train", "--backbone", "[/]"),
        ("train", "--epochs", "9" * 5000),
        ("train", "--batch-size", "9" * 5000),
        ("train", "--budget", "1e999999M"),
        ("train", "--pretrained", "x" * 5000),
        ("report", "x" * 5000),
        ("compare", "x" * 5000),
        ("explore", "x" * 5000),
        ("bench", "x" * 5000),
        ("export", "x" * 5000, "y"),
        ("data", "get", "imagefolder:" + "x" * 5000),
        ("data", "get", "cifar10", "--root", "x" * 5000),
        ("inspect", "nosuch:x", "--input", "9" * 5000),
        ("inspect", "torch.nn:Identity", "--input", "9" * 5000),
    ],
    ids=range(23),
)
def test_a_strange_argument_is_one_line(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "Traceback" not in err and "\x1b" not in err
    assert len(err.strip().splitlines()) == 1
