"""Links, pipes and devices where a file should be."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import sanp
from sanp.core.files import append_line, check_tensor_file, expanded, locked, own_folder, read_text, write_text
from sanp.core.limits import LARGEST_HEADER, LARGEST_TENSOR_FILE, LARGEST_TEXT


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fails what waits for ever."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the run folder."""
    path = tmp_path / "victim"
    path.write_text("precious\n")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_is_kept(run: Path, victim: Path) -> None:
    (run / ".lock").symlink_to(victim)
    with pytest.raises(sanp.SanpError, match="no ordinary file: remove it"), locked(run):
        pass
    assert victim.read_text() == "precious\n"


def test_a_lock_that_is_a_hard_link_is_not_emptied(run: Path, victim: Path) -> None:
    os.link(victim, run / ".lock")
    with locked(run):
        pass
    assert victim.read_text() == "precious\n"


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused(run: Path) -> None:
    os.mkfifo(run / ".lock")
    with within(5), pytest.raises(sanp.SanpError, match="no ordinary file"), locked(run):
        pass
    (run / ".lock").unlink()
    (run / ".lock").mkdir()
    with pytest.raises(sanp.SanpError, match="no ordinary file"), locked(run):
        pass


@pytest.mark.parametrize("write", [write_text, append_line])
def test_nothing_is_written_through_a_link(run: Path, victim: Path, write: Callable[[Path, str], None]) -> None:
    (run / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(sanp.SanpError, match=r"metrics\.jsonl"):
        write(run / "metrics.jsonl", "line")
    assert victim.read_text() == "precious\n"
    assert (run / "metrics.jsonl").is_symlink()


@pytest.mark.parametrize("write", [write_text, append_line])
def test_a_pipe_is_not_written_to(run: Path, write: Callable[[Path, str], None]) -> None:
    os.mkfifo(run / "metrics.jsonl")
    with within(5), pytest.raises(sanp.SanpError, match=r"metrics\.jsonl"):
        write(run / "metrics.jsonl", "line")


def test_a_folder_inside_the_run_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    assert own_folder(run, "state") == run / "state"
    (run / "state").symlink_to(tmp_path)
    with pytest.raises(sanp.SanpError, match="is a link, not a folder of this run: remove it"):
        own_folder(run, "state")


def test_a_pipe_a_device_and_a_file_that_is_too_large_are_not_read(run: Path) -> None:
    os.mkfifo(run / "pipe")
    (run / "zero").symlink_to("/dev/zero")
    with (run / "large").open("wb") as file:
        file.truncate(LARGEST_TEXT + 1)
    for name, words in (("pipe", "a pipe"), ("zero", "a device"), ("large", "more than")):
        with within(5), pytest.raises((OSError, ValueError), match=words):
            read_text(run / name)


def test_a_tensor_file_with_a_huge_header_or_that_is_a_pipe_is_refused_before_it_is_read(run: Path) -> None:
    (run / "net").write_bytes((LARGEST_HEADER + 1).to_bytes(8, "little") + b"{")
    with pytest.raises(sanp.SanpError, match="too many tensors"):
        check_tensor_file(run / "net")
    with (run / "sparse").open("wb") as file:
        file.truncate(LARGEST_TENSOR_FILE + 1)  # takes no room on the disk
    with pytest.raises(sanp.SanpError, match=f"sparse has {LARGEST_TENSOR_FILE + 1} bytes"):
        check_tensor_file(run / "sparse")
    os.mkfifo(run / "pipe")
    with within(5), pytest.raises(OSError, match="ordinary"):
        check_tensor_file(run / "pipe")


def test_a_home_folder_is_expanded_and_one_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of/mine")
    assert expanded("~/x") == Path("/home/of/mine/x")
    with pytest.raises(sanp.SanpError, match="not known here: give the whole path"):
        expanded("~nosuchuser/x")
