"""The whole battery over every family of pytorchcv and four of transformers: writes docs/networks.md.

Run from the repository: ``python -m tests.networks.sweep`` (an hour or two on one core), or with names of families to
see only those. What is done is kept in runs/networks.jsonl, so that it can be stopped and started again.
"""

import gc
import json
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from sanp.flops import human
from sanp.testing import CHECKS, Case, NotApplicable, check_network
from sanp.testing.handling import check_autocast
from tests.networks.families import CLASSIFICATION, OTHER, SEGMENTATION, maker
from tests.networks.transformers_networks import TRANSFORMERS, transformers_network

DONE = Path("runs/networks.jsonl")
TABLE = Path("docs/networks.md")
SLOW = 5e7
"""FLOPs of a network above which half precision is left out: without hardware for it, it takes minutes"""


def check_autocast_of_a_light_network(case: Case) -> None:
    """As :func:`sanp.testing.check_autocast`."""
    if case.gated.dense_flops > SLOW:
        raise NotApplicable(f"half precision is left out above {human(SLOW)} FLOPs")
    check_autocast(case)


BATTERY = tuple(check_autocast_of_a_light_network if each is check_autocast else each for each in CHECKS)


def check(family: str) -> dict[str, Any]:
    """The battery on one family, as a line of the table."""
    make, example = transformers_network(family) if family in TRANSFORMERS else _image(*maker(family))
    line: dict[str, Any] = {"family": family, "size": example.shape[-1]}
    start = time.perf_counter()
    try:
        line |= asdict(check_network(make, example, checks=BATTERY))
    except Exception as error:
        line["failure"] = f"{type(error).__name__}: {error}"
    return line | {"seconds": round(time.perf_counter() - start, 1)}


def _image(make: Any, size: int) -> tuple[Any, torch.Tensor]:
    return make, torch.randn(1, 3, size, size)


def main(wanted: list[str]) -> None:
    """Checks what is not done yet, then writes the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    every = [*CLASSIFICATION, *SEGMENTATION, *OTHER, *TRANSFORMERS]
    done = {line["family"]: line for line in map(json.loads, DONE.read_text().splitlines())} if DONE.exists() else {}
    DONE.parent.mkdir(exist_ok=True)
    for family in wanted or [family for family in every if family not in done]:
        done[family] = check(family)
        sys.stderr.write(f"{family}: {done[family].get('failure', 'passes')}, {done[family]['seconds']} s\n")
        with DONE.open("a") as file:
            file.write(json.dumps(done[family]) + "\n")
        gc.collect()
    TABLE.write_text(table([done[family] for family in every if family in done], len(every)))


def table(lines: list[dict[str, Any]], every: int) -> str:
    """The page: what passes, and for each family what is gated and what is not."""
    passed = sum("failure" not in line for line in lines)
    classifiers = [line for line in lines if line["family"] in CLASSIFICATION]
    right = sum("failure" not in line for line in classifiers)
    head = [
        "# Networks",
        "",
        "`sanp.testing.check_network` on one small member of each family of pytorchcv, at the smallest of a few input",
        "sizes that it takes, and on four families of transformers. Made by `python -m tests.networks.sweep`.",
        "",
        f"{passed} of the {len(lines)} networks that were run pass; of the {len(classifiers)} classification families",
        f"among them, {right}. {every - len(lines)} were not run.",
        "",
        "*Gated* is the share of the dense FLOPs in convolutions that have gates, their own or those of their input;",
        "*least* is the cost with one channel open in each gated layer. Left dense: how many convolutions, and why.",
        "Half precision (autocast) is checked on networks below 50M FLOPs.",
        "",
        "| family | member | input | FLOPs | convolutions | gated | least | left dense | without a rule |",
        "|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    return "\n".join([*head, *map(row, lines)]) + "\n"


def row(line: dict[str, Any]) -> str:
    """One family."""
    family, size = line["family"], line["size"]
    member = {**CLASSIFICATION, **SEGMENTATION, **OTHER}.get(family, ("transformers", 0))[0]
    if "failure" in line:
        return f"| {family} | {member} | {size} | fails: {line['failure'].replace('|', '/')[:300]} | | | | | |"
    reasons = Counter(line["skipped"].values())
    dense = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
    unknown = ", ".join(line["unknown"])
    return (
        f"| {family} | {member} | {size} | {human(line['dense_flops'])} | {line['convolutions']} "
        f"| {line['gated_share']:.1%} | {line['floor']:.1%} | {dense} | {unknown} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
