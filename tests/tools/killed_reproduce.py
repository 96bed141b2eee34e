"""Kills `sanp reproduce` with SIGKILL after every epoch that it writes down, and starts it again each time.

Run as a program of its own (test_reproduce.py does): children are forked, so nothing here may have started threads.
Prints how often it killed, and the results lines of a row that was never stopped and of the one that was.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # loaded once here, not in every child
import torch.utils.tensorboard

from sanp.cli.reproduce import reproduce_paper
from sanp.experiments.table import NAMES
from tests.tools.tiny_run import install

RECIPE = """backbone = "tiny"
batch_size = 32
threads = 1
budget = "60%"
[fit]
pretrain_epochs = 2
joint_epochs = 2
precision = "fp32"
norm_batches = 2
"""


def child(root: Path, place: Path) -> int:
    """Starts the command in a forked process and gives its number."""
    number = os.fork()
    if number == 0:
        page = place / "page.md"
        reproduce_paper("table1", recipes=root, runs=place / "runs", results=place / "results", page=[page])
        os._exit(0)
    return number


def epochs(place: Path) -> int:
    """How many epochs the runs have written down."""
    return sum(path.read_text().count("\n") for path in place.glob("runs/*/metrics.jsonl"))


def main(root: Path) -> None:
    """Once whole, once killed after each of the five epochs."""
    torch.set_num_threads(1)
    install()
    NAMES["tiny"] = "Tiny"
    (root / "table1").mkdir()
    (root / "table1" / "tiny-sanp.toml").write_text(RECIPE)
    kills = 0
    for name in ("whole", "killed"):
        (root / name).mkdir()
        (root / name / "page.md").write_text("<!-- tables -->\n<!-- end of tables -->\n")
        while not (root / name / "results" / "table1.jsonl").exists():
            before, number = epochs(root / name), child(root, root / name)
            while os.waitpid(number, os.WNOHANG) == (0, 0):
                if name == "killed" and epochs(root / name) > before:
                    os.kill(number, signal.SIGKILL)
                    os.waitpid(number, 0)
                    kills += 1
                    break
                time.sleep(0.005)
    lines = {
        f"{name}/{file}": json.loads((root / name / "results" / f"{file}.jsonl").read_text())
        for name in ("whole", "killed")
        for file in ("dense", "table1")
    }
    print(json.dumps({"kills": kills, **lines}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
