"""Results files: each line is the JSON of one run with its numbers, config, seed, versions and commit."""

import json
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sanp.core.checks import is_finite, is_kind
from sanp.core.errors import SanpError, shown
from sanp.core.files import append_line, read_text
from sanp.core.limits import LARGEST_COUNT, LONGEST_LABEL
from sanp.experiments.run_folder import read_report, read_run
from sanp.methods import METHODS

Line = dict[str, Any]
"""a line of a results file"""


def result_line(name: str, folder: Path, seconds: float) -> Line:
    """The results line of the finished run in ``folder``: its numbers, and all that is needed to repeat it.

    ``name`` is the name of the run in tables; ``seconds`` is how long it took.
    """
    recipe, report = read_run(folder), read_report(folder)
    layers = report["layers"]
    deeper = layers[len(layers) // 2 :]
    fit = recipe.fit
    return {
        "name": name,
        "method": recipe.method,
        "backbone": recipe.backbone,
        "data": recipe.data,
        "seed": recipe.seed,
        "epochs": [fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs],
        "images": recipe.limit,
        "dense_error": 1 - report["dense"]["accuracy"],
        "spread": float(np.std(report["per_sample"])) / report["dense_flops"],
        "sometimes_deeper_half": sum(each["sometimes"] for each in deeper) / sum(each["channels"] for each in deeper),
        **{
            key: report[key]
            for key in ("error", "flops", "paper_flops", "dense_flops", "kept", "pruned", "overhead_flops")
        },
        **({"held_out_error": 1 - report["held_out"]["accuracy"]} if "held_out" in report else {}),
        "seconds": round(seconds, 1),
        "config": {**recipe.as_dict(), "pretrained": _within(recipe.pretrained)},
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "commit": commit(),
    }


def _within(pretrained: str | None) -> str | None:
    """The path of a dense network, shortened to its run folder and file, so that it holds no path of this machine."""
    return None if pretrained is None else Path(*Path(pretrained).parts[-2:]).as_posix()


def append(path: Path, line: Line) -> None:
    """Adds a line to the results file ``path``, which must be an ordinary file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SanpError(f"cannot write {path} ({error.strerror}): choose another folder") from error
    append_line(path, json.dumps(line))


def read_results(path: Path) -> Iterator[Line]:
    """The lines of the results file ``path``; none if the file does not exist."""
    if not path.exists():
        return
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise SanpError(f"{path} cannot be read ({error}): give a folder of results files") from error
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SanpError(f"{path}, line {number} is not JSON ({error}): remove it and run that row again") from error
        if not isinstance(line, dict):
            raise SanpError(f"{path}, line {number} is {shown(line)}: remove it and run that row again")
        yield line


RUN_TEXTS, RUN_NUMBERS = ("name", "method", "backbone", "data"), ("error", "flops", "pruned", "paper_flops")
"""fields of every line of a run"""
RUN_EXTRAS = tuple("kept dense_error overhead_flops spread sometimes_deeper_half seconds trials".split())
"""numbers that a line may lack"""


def trials_of(method: str, results: Path) -> int:
    """How many trials of a method's settings the folder ``results`` has (scripts/trials.py)."""
    return sum(line.get("method") == method for line in read_results(results / "trials.jsonl"))


def read_run_lines(path: Path) -> Iterator[Line]:
    """The lines of a results file that :func:`result_line` made; an error for one that it cannot have made."""
    for number, line in enumerate(read_results(path), 1):
        try:
            _check_run(line)
        except (KeyError, ValueError, TypeError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise SanpError(
                f"{path}, line {number} is not of a run ({why}): remove it and run that row again"
            ) from error
        yield line


def _check_run(line: Line) -> None:
    for name in RUN_TEXTS:
        if not isinstance(line[name], str) or len(line[name]) > LONGEST_LABEL:
            raise ValueError(f"{name} is {shown(line[name])}")
    if line["method"] not in METHODS:
        raise ValueError(f"the method {shown(line['method'])} is not known")
    for name in (*RUN_NUMBERS, *(each for each in RUN_EXTRAS if each in line)):
        if not is_kind(line[name], float) or not is_finite(line[name]) or abs(line[name]) > LARGEST_COUNT:
            raise ValueError(f"{name} is {shown(line[name])}")
    counts = [line["dense_flops"], *line["epochs"], line["seed"], *([] if line["images"] is None else [line["images"]])]
    if len(line["epochs"]) != 3 or line["dense_flops"] < 1:
        raise ValueError("epochs or dense_flops is damaged")
    if not all(is_kind(each, float) and 0 <= each <= LARGEST_COUNT for each in counts):
        raise ValueError("epochs, images, seed or dense_flops is no count")
    if not isinstance(config := line.get("config", {}), dict):  # lines of older versions have none
        raise ValueError(f"config is {shown(config)}")


def commit() -> str | None:
    """The git commit of the running code, with a + if the code has changed since; None outside a repository."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "--", "."],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip()[:12] + ("+" if changed.stdout else "")
