"""Kills runs at random moments, among them while a checkpoint is being written, and goes on with them each time.

``python -m tests.tools.kill 100``: that many kills over runs of three methods, one of them under torchrun with two
processes, of which one is killed. Children are forked, so nothing here may have started threads. Prints ``same after N
kills`` if every run ends the same, to the bit, as one that was never stopped.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # loaded once here, not in every child
import torch.utils.tensorboard
from safetensors.torch import load_file

import sanp.experiments.state
from sanp.experiments.recipe import Recipe
from sanp.experiments.run import resumed, train
from tests.tools.tiny_run import install, recipe

FIT = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 6, "precision": "fp32", "norm_batches": 2}
FILES = ("model.safetensors", "dense.safetensors", "metrics.jsonl", "report.json")
FORKED, TORCHRUN = ("sanp", "ns"), "fbs"
"""methods"""
SLOW = 10
"""one kill in so many is under torchrun, which takes seconds to start"""


def child(work: Callable[[], object]) -> int:
    """Runs the work in a forked process and gives its number."""
    number = os.fork()
    if number == 0:
        work()
        os._exit(0)
    return number


def die_inside_write(countdown: int) -> None:
    """Makes the process kill itself when it has half written its checkpoint number ``countdown``."""
    whole = sanp.experiments.state.save_file
    left = [countdown]

    def half(tensors: dict[str, torch.Tensor], path: str, metadata: dict[str, str]) -> None:
        left[0] -= 1
        whole(tensors, path, metadata)
        if left[0] == 0:
            with Path(path).open("r+b") as file:
                file.truncate(Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    sanp.experiments.state.save_file = half


def go_on(settings: Recipe, folder: Path, countdown: int | None) -> None:
    """Starts the run or goes on with it."""
    if countdown is not None:
        die_inside_write(countdown)
    if (folder / "config.toml").exists():
        resumed(folder)
    else:
        train(settings, folder)


def forked(method: str, root: Path, kills: int, dice: random.Random) -> int:
    """Kills the one process of a run; gives how often."""
    settings = recipe(fit=FIT, method=method)
    start = time.monotonic()
    os.waitpid(child(lambda: train(settings, root / "whole")), 0)
    length, done = time.monotonic() - start, 0
    while not (root / "killed" / "model.safetensors").exists():
        inside = dice.randint(1, 2) if done < kills and dice.random() < 0.4 else None
        number = child(lambda inside=inside: go_on(settings, root / "killed", inside))  # type: ignore[misc]
        if inside is None and done < kills:
            time.sleep(dice.uniform(0, 0.12 * length))
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
            sys.exit(f"a run of {method} could not be gone on with after {done} kills")
        done += os.WIFSIGNALED(status)
    return done


def torchrun(arguments: list[str]) -> "subprocess.Popen[bytes]":
    """Starts a run by two processes."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*program, "-m", "tests.tools.tiny_sanp", *arguments], **quiet)  # type: ignore[call-overload]


def ranks_of(agent: int) -> list[int]:
    """The processes that torchrun has started."""
    try:
        return [int(each) for each in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
    except OSError:
        return []


def by_torchrun(method: str, root: Path, kills: int, dice: random.Random) -> int:
    """Kills one of the two processes of a run, after it has begun to write; gives how often."""
    settings, folder, done = root / "recipe.toml", root / "killed", 0
    settings.write_text(recipe(fit=FIT, method=method).as_toml())
    if torchrun(["train", "--recipe", str(settings), "--out", str(root / "whole")]).wait():
        sys.exit("the run under torchrun did not end")
    while not (folder / "model.safetensors").exists():
        began = (folder / "config.toml").exists()
        before = changed(folder)
        agent = torchrun(
            ["train", "--resume", str(folder)] if began else ["train", "--recipe", str(settings), "--out", str(folder)]
        )
        if done < kills:
            while changed(folder) == before and agent.poll() is None:
                time.sleep(0.01)
            time.sleep(dice.uniform(0, 0.4))
            if agent.poll() is None and (ranks := ranks_of(agent.pid)):
                os.kill(dice.choice(ranks), signal.SIGKILL)
                done += 1
                agent.wait()
                continue
        if agent.wait():
            sys.exit(f"a run of {method} under torchrun could not be gone on with after {done} kills")
    return done


def changed(folder: Path) -> float:
    """When anything in the folder was last written."""
    return max((path.lstat().st_mtime for path in [folder, *folder.glob("*")] if path.exists()), default=0.0)


def compare(method: str, root: Path) -> None:
    """Ends the program if the killed run differs from the whole one."""
    for name in FILES:
        a, b = root / "whole" / name, root / "killed" / name
        if name.endswith("safetensors"):
            first, second = load_file(a), load_file(b)
            same = first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
        else:
            same = a.read_text() == b.read_text()
        if not same:
            sys.exit(f"{name} of {method} differs")


def main(kills: int) -> None:
    """Runs every method once whole, once with kills, and compares."""
    torch.set_num_threads(1)
    install()
    dice, slow, done = random.Random(0), kills // SLOW, 0
    with tempfile.TemporaryDirectory() as place:
        for position, method in enumerate((*FORKED, TORCHRUN)):
            root = Path(place) / method
            root.mkdir()
            if method == TORCHRUN:
                done += by_torchrun(method, root, kills - done, dice)
            else:
                done += forked(method, root, (kills - slow + position) // len(FORKED), dice)
            compare(method, root)
    print(f"same after {done} kills")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
