"""Where the command line prints: closed streams, full disks, ended pipes, other encodings, names of any kind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sanp
from sanp.cli.app import _say
from sanp.experiments.own_network import build_own
from sanp.report.page import write_page

PROGRAM = "import sys; sys.argv = ['sanp', *sys.argv[1:]]; from sanp.cli.app import main; main()"


def shell(redirect: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs `sanp methods` in a shell with its output redirected."""
    command = f'exec "{sys.executable}" -c "{PROGRAM}" methods {redirect}'
    return subprocess.run(
        ["bash", "-c", command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(redirect: str) -> None:
    done = shell(redirect)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_line() -> None:
    done = shell("> /dev/full")
    assert done.returncode == 2
    assert done.stderr == "error: the output: No space left on device\n"


def test_a_pipe_that_has_ended_is_no_traceback() -> None:
    assert shell("| true").stderr == ""


def test_letters_that_a_terminal_lacks_are_written_by_their_codes() -> None:
    program = "from sanp.cli.streams import prepare_streams; prepare_streams(); print('λ ✓')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "\\u03bb \\u2713\n"


def test_an_error_of_a_megabyte_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    _say("x" * 1_000_000)
    assert len(capsys.readouterr().err) < 4100


@pytest.mark.parametrize("text", ["import sys; sys.exit(3)", "import sys\ndef make(): sys.exit()"])
def test_a_module_that_ends_the_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"ends_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(sanp.SanpError, match="SystemExit"):
        build_own(f"{name}:make")


def test_names_that_turn_text_around_or_cannot_be_written_are_codes_on_a_page(finished: Path) -> None:
    found = json.loads((finished / "report.json").read_text())
    found["layers"][0]["name"] = "a\u202eb\udc80c\x1b"
    (finished / "report.json").write_text(json.dumps(found))
    page = write_page([finished], finished / "report.html").read_text(encoding="utf-8")
    assert "a\\u202eb\\udc80c\\x1b" in page
    assert "\u202e" not in page and "\x1b" not in page
