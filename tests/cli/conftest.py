"""The command line as a shell would call it, with a network and images that train in a second."""

import sys
from collections.abc import Callable

import pytest

from sanp.cli.app import main
from sanp.cli.console import console
from tests.tools import tiny_run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Takes the arguments; gives the exit code, what was printed, and the errors."""
    tiny_run.install(monkeypatch)
    monkeypatch.setattr(console, "width", 200)  # so that no name in a table is cut

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sanp", *arguments])
        code = 0
        try:
            main()
        except SystemExit as exit:
            code = int(exit.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call
