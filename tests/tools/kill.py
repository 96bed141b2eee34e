"""Kills runs at random moments, among them while a checkpoint is being written, and goes on with them each time.

``python -m tests.tools.kill 100 [seed]``: that many kills over runs of three methods. One of them has a single budget
and a range of them, one is under torchrun with two processes, of which one is killed. Children are forked, so nothing
here may have started threads. Prints ``same after N kills`` if every run ends the same, to the bit, as one that was
never stopped.
"""

import json
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
from safetensors import safe_open
from safetensors.torch import load_file

import sanp.experiments.state
from sanp.experiments.recipe import Recipe
from sanp.experiments.run import resumed, train
from tests.tools.tiny_run import install, recipe

FIT = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 6, "precision": "fp32", "norm_batches": 2}
FILES = ("model.safetensors", "dense.safetensors", "metrics.jsonl", "report.json")
RUNS: dict[str, dict[str, object]] = {
    "sanp": {},
    "sanp with a range": {"budget": "45%..75%"},
    "ns": {"method": "ns"},
    "fbs by torchrun": {"method": "fbs"},
}
"""settings of each run; the last is under torchrun"""
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


def forked(name: str, root: Path, kills: int, dice: random.Random) -> int:
    """Kills the one process of a run; gives how often."""
    settings = recipe(fit=FIT, **RUNS[name])
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
            sys.exit(f"{name}: the run could not be gone on with after {done} kills")
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


def by_torchrun(name: str, root: Path, kills: int, dice: random.Random) -> int:
    """Kills one of the two processes of a run, after it has begun to write; gives how often."""
    settings, folder, done = root / "recipe.toml", root / "killed", 0
    settings.write_text(recipe(fit=FIT, **RUNS[name]).as_toml())
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
            sys.exit(f"{name}: the run could not be gone on with after {done} kills")
    return done


def changed(folder: Path) -> float:
    """When anything in the folder was last written."""
    return max((path.lstat().st_mtime for path in [folder, *folder.glob("*")] if path.exists()), default=0.0)


def compare(name: str, root: Path) -> None:
    """Ends the program if the killed run differs from the whole one."""
    for file in FILES:
        a, b = root / "whole" / file, root / "killed" / file
        same = _content(a) == _content(b) if file.endswith("safetensors") else a.read_text() == b.read_text()
        if not same:
            sys.exit(f"{file} of {name} differs")


def _content(path: Path) -> tuple[dict[str, object], dict[str, tuple[str, list[int], bytes]]]:
    """The header of a network's file, with thresholds and dial, and its tensors to the bit."""
    with safe_open(path, framework="pt") as file:
        header = {key: json.loads(text) for key, text in file.metadata().items()}
    tensors = {key: tensor.contiguous() for key, tensor in load_file(path).items()}
    return header, {
        key: (str(tensor.dtype), list(tensor.shape), tensor.numpy().tobytes()) for key, tensor in tensors.items()
    }


def main(kills: int, seed: int = 0) -> None:
    """Carries every run out once whole, once with kills at moments drawn from ``seed``, and compares."""
    torch.set_num_threads(1)
    install()
    dice, slow, done = random.Random(seed), kills // SLOW, 0
    *by_fork, by_agent = RUNS
    with tempfile.TemporaryDirectory() as place:
        for position, name in enumerate(RUNS):
            root = Path(place) / str(position)
            root.mkdir()
            if name == by_agent:
                killed = by_torchrun(name, root, kills - done, dice)
            else:
                killed = forked(name, root, (kills - slow + position) // len(by_fork), dice)
            compare(name, root)
            done += killed
            print(f"{name}: {killed} kills", flush=True)  # noqa: T201
    print(f"same after {done} kills")  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
