import inspect
import os
import subprocess
import sys

import pytest
import torch

import sanp
from sanp.cli.commands import COMMANDS
from sanp.methods import METHODS
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "--budget", "35"), "budget '35' cannot be read"),
        (("train", "--budget", "0"), "cannot be read"),
        (("train", "--budget", "150%"), "more than the whole network"),
        (("train", "--backbone", "resnet"), "did you mean resnet50 or resnet18"),
        (("train", "--network", "a:b", "--backbone", "vgg19"), "and --backbone vgg19 were given: give one"),
        (("train", "--method", "fbss"), "unknown method 'fbss'"),
        (("train", "--epochs", "many"), "three as 20,1,12"),
        (("train", "--fit.lr", "fast"), "--fit.lr is 'fast': wanted a number"),
        (("train", "--ns.highest", "1"), "settings of method ns, and the method is sanp"),
        (("train", "--spm.per", "pixel"), "choose one of sample, element"),
        (("train", "--recipe", "none.toml"), "cannot read the recipe"),
        (("train", "--resume", "nowhere"), "not a run folder"),
        (("train", "--resume", "nowhere", "--fit.lr", "0.01"), "takes only --threads and --network"),
        (("train", "--resume", "nowhere", "--epochs", "3"), "takes only --threads and --network"),
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


HELPED = ["", *COMMANDS, "data list", "data get", "data check"]


@pytest.mark.parametrize("command", HELPED)
def test_a_help_page_loads_no_torch_and_fits_two_screens_of_80_columns(command: str) -> None:
    program = "import sys; from sanp.cli.app import main\n"
    program += "try: main()\nexcept SystemExit: pass\nassert not {'torch', 'numpy'} & set(sys.modules)"
    asked = [sys.executable, "-c", program, *command.split(), "--help"]
    narrow = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    found = subprocess.run(asked, capture_output=True, text=True, check=False, env=narrow, encoding="utf-8")
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert "Usage:" in found.stdout and len(lines) <= 2 * 24 and max(map(len, lines)) <= 80
    assert command or all(name in found.stdout for name in COMMANDS)


def test_help_is_shown_whatever_else_was_given(run: Run) -> None:
    plain_page = run("train", "--help")
    assert run("--debug", "train", "--fit.lr", "0.1", "--out", "--help") == plain_page
    assert run("train", "--no-such-option", "--help") == plain_page
    assert "data check" in run("data", "check", "folder", "--help")[1]
    code, _, err = run("trian", "train", "--help")
    assert code == 2 and "No such command 'trian'" in err


def test_what_help_shows_of_train_is_what_it_takes(run: Run) -> None:
    for_help = inspect.signature(COMMANDS["train"].load(for_help=True)).parameters
    whole = inspect.signature(COMMANDS["train"].load()).parameters
    assert list(for_help) == list(whole)[: len(for_help)] and len(for_help) < len(whole)
    assert [str(each.default) for each in for_help.values()] == [str(whole[name].default) for name in for_help]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0 and "Usage" in out
    command = COMMANDS[name].load()
    assert COMMANDS[name].group or (command.__doc__ and command.__doc__.split()[0] == COMMANDS[name].help.split()[0])


def test_the_methods_are_listed_and_one_shows_its_settings(run: Run) -> None:
    _, out, _ = run("methods")
    assert all(f"\n{name} " in f"\n{out}" for name in METHODS)
    _, out, _ = run("methods", "fbs")
    assert "--fbs.lasso" in out and "(default: 1e-08)" in out
    code, _, err = run("methods", "fbss")
    assert code == 2 and "did you mean fbs" in err
