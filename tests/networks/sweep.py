"""The whole battery over every family of pytorchcv and the CNNs of transformers: the tables of docs/networks.md.

Run from the repository: ``python -m tests.networks.sweep`` (an hour on one core), or with names of families to see only
those. What is done is a line in results/networks.jsonl, so that it can be stopped and started again; without that file
it starts anew. With ``--compiled`` only the engine is checked, and its part of each line is made again, small networks
first; each family has a process of its own and at most TIME_LIMIT seconds, so that none can stop the others.
"""

import gc
import multiprocessing
import platform
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from sanp.experiments.documents import fill
from sanp.experiments.results import append, commit, read_results
from sanp.gating.flops import human
from sanp.testing import CHECKS, Case, NotApplicable, check_network
from sanp.testing.compiled import check_compiled
from sanp.testing.handling import check_autocast
from tests.networks.families import CLASSIFICATION, OTHER, SEGMENTATION, maker
from tests.networks.transformers_networks import TRANSFORMERS, transformers_network

LINES = Path("results/networks.jsonl")
PAGE = Path("docs/networks.md")
EVERY = [*CLASSIFICATION, *SEGMENTATION, *OTHER, *TRANSFORMERS]
SLOW = 5e7
"""FLOPs of a network above which half precision is left out: without hardware for it, it takes minutes"""

TIME_LIMIT = 420
"""seconds that a family may take with ``--compiled``"""


def check_autocast_of_a_light_network(case: Case) -> None:
    """As :func:`check_autocast`."""
    if case.gated.dense_flops > SLOW:
        raise NotApplicable(f"half precision is left out above {human(SLOW)} FLOPs")
    check_autocast(case)


BATTERY = tuple(check_autocast_of_a_light_network if each is check_autocast else each for each in CHECKS)


def check(family: str) -> dict[str, Any]:
    """The battery on one family, as a line of the table."""
    make, example = transformers_network(family) if family in TRANSFORMERS else _image(*maker(family))
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    line: dict[str, Any] = {"family": family, "size": example.shape[-1], "versions": versions, "commit": commit()}
    start = time.perf_counter()
    try:
        line |= asdict(check_network(make, example, checks=BATTERY))
    except Exception as error:
        line["failure"] = f"{type(error).__name__}: {error}"
    return line | {"seconds": round(time.perf_counter() - start, 1)}


def _image(make: Any, size: int) -> tuple[Any, torch.Tensor]:
    return make, torch.randn(1, 3, size, size)


def check_engine(family: str, before: dict[str, Any]) -> dict[str, Any]:
    """A family's line with what the engine does with it now."""
    make, example = transformers_network(family) if family in TRANSFORMERS else _image(*maker(family))
    start, line = time.perf_counter(), {**before, "engine_commit": commit()}
    if any(said in line.get("failure", "") for said in ("check_compiled", "took over", "ended without")):
        del line["failure"]  # of the engine, when it was tried before
    case = Case(make, example)
    try:
        check_compiled(case)
    except NotApplicable:
        pass
    except Exception as error:
        line["failure"] = f"{type(error).__name__}: check_compiled: {error}"
    line |= {"native_share": case.native_share, "in_torch": case.in_torch, "difference": case.difference}
    return line | {"seconds": round(time.perf_counter() - start, 1)}


def in_a_process(family: str, before: dict[str, Any]) -> dict[str, Any]:
    """As :func:`check_engine`, in a process that is ended when its time is over."""
    context = multiprocessing.get_context("fork")
    there, here = context.Pipe()
    process = context.Process(target=lambda: here.send(check_engine(family, before)), daemon=True)
    process.start()
    here.close()
    try:
        found: dict[str, Any] | str = there.recv() if there.poll(TIME_LIMIT) else f"took over {TIME_LIMIT} s"
    except EOFError:
        found = "its process ended without a result"
    process.kill()
    process.join()
    if not isinstance(found, str):
        return found
    return {**before, "engine_commit": commit(), "difference": None, "seconds": TIME_LIMIT, "failure": found}


def main(wanted: list[str], *, only_engine: bool = False) -> None:
    """Checks what is not done yet, then writes the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = by_family()
    key = "difference" if only_engine else "commit"
    every = sorted(EVERY, key=lambda family: done[family].get("dense_flops", 0)) if only_engine else EVERY
    for family in wanted or [family for family in every if key not in done.get(family, {})]:
        line = in_a_process(family, done[family]) if only_engine else check(family)
        sys.stderr.write(f"{family}: {line.get('failure', 'passes')}, {line['seconds']} s\n")
        append(LINES, line)
        gc.collect()
    fill(PAGE, "networks", table(by_family()))


def by_family() -> dict[str, dict[str, Any]]:
    """The last line of each family."""
    return {line["family"]: line for line in read_results(LINES)}


def table(done: dict[str, dict[str, Any]]) -> str:
    """How many pass, and for each family what is gated and what is not."""
    lines = [done[family] for family in EVERY if family in done]
    passed = [line["family"] for line in lines if "failure" not in line]
    classifiers = [line["family"] for line in lines if line["family"] in CLASSIFICATION]
    shares = [line["native_share"] for line in lines if line.get("native_share") is not None]
    whole = [line for line in lines if line.get("native_share") is not None and not line["in_torch"]]
    whole = [line for line in whole if "check_compiled" not in line.get("failure", "")]
    head = [
        f"{len(passed)} of {len(lines)} networks pass; of the {len(classifiers)} classification families among them, "
        f"{len(set(passed) & set(classifiers))}. {len(EVERY) - len(lines)} were not run. The engine was tried on "
        f"{len(shares)} of them: {sum(share >= 0.95 for share in shares)} have at least 95 % of their FLOPs native, "
        f"{len(whole)} run natively from end to end and agree.",
        "",
        "| family | member | input | FLOPs | convolutions | gated | least | native | differs | left dense "
        "| without a rule | in torch |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|---|",
    ]
    return "\n".join([*head, *map(row, lines)])


def row(line: dict[str, Any]) -> str:
    """One family."""
    family, size = line["family"], line["size"]
    member = {**CLASSIFICATION, **SEGMENTATION, **OTHER}.get(family, ("transformers", 0))[0]
    if "failure" in line:
        return f"| {family} | {member} | {size} | fails: {line['failure'].replace('|', '/')[:300]} | | | | | | | | |"
    reasons = Counter(line["skipped"].values())
    dense = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
    unknown = ", ".join(line["unknown"])
    share = line.get("native_share")
    native = "" if share is None else f"{share:.1%}"
    gap = line.get("difference")
    differs = "" if gap is None else f"{gap:.0e}"
    return (
        f"| {family} | {member} | {size} | {human(line['dense_flops'])} | {line['convolutions']} "
        f"| {line['gated_share']:.1%} | {line['floor']:.1%} | {native} | {differs} | {dense} | {unknown} "
        f"| {line.get('in_torch', '').replace('|', '/')} |"
    )


if __name__ == "__main__":
    main([each for each in sys.argv[1:] if each != "--compiled"], only_engine="--compiled" in sys.argv)
