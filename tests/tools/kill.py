"""Kills a run at random points, among them while a checkpoint is being written, and goes on with it each time.

Run as a program of its own (test_resume.py does): children are forked, so nothing here may have started threads.
Prints ``same after N kills`` if the end is the same, to the bit, as that of a run that was never stopped.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # loaded once here, not in every child
import torch.utils.tensorboard
from safetensors.torch import load_file

import sanp.experiments.state
from sanp.experiments.run import resumed, train
from tests.tools.tiny_run import install, recipe

FIT = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 6, "precision": "fp32", "norm_batches": 2}
FILES = ("model.safetensors", "dense.safetensors", "metrics.jsonl", "report.json")


def child(work: object) -> int:
    """Runs the work in a forked process and gives its number."""
    number = os.fork()
    if number == 0:
        work()  # type: ignore[operator]
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


def go_on(folder: Path, countdown: int | None) -> None:
    """Starts the run or goes on with it."""
    if countdown is not None:
        die_inside_write(countdown)
    if (folder / "config.toml").exists():
        resumed(folder)
    else:
        train(recipe(fit=FIT), folder)


def main(root: Path, kills: int) -> None:
    """Runs once whole, once with kills, and compares."""
    torch.set_num_threads(1)
    install()
    start = time.monotonic()
    os.waitpid(child(lambda: train(recipe(fit=FIT), root / "whole")), 0)
    length = time.monotonic() - start
    dice, done = random.Random(0), 0
    while not (root / "killed" / "model.safetensors").exists():
        inside = dice.randint(1, 2) if done < kills and dice.random() < 0.4 else None
        number = child(lambda inside=inside: go_on(root / "killed", inside))  # type: ignore[misc]
        if inside is None and done < kills:
            time.sleep(dice.uniform(0, 0.12 * length))
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
            sys.exit(f"a run could not be gone on with after {done} kills")
        done += os.WIFSIGNALED(status)
    for name in FILES:
        a, b = root / "whole" / name, root / "killed" / name
        if name.endswith("safetensors"):
            first, second = load_file(a), load_file(b)
            same = first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
        else:
            same = a.read_text() == b.read_text()
        if not same:
            sys.exit(f"{name} differs after {done} kills")
    print(f"same after {done} kills")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
