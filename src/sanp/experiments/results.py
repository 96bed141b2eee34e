"""Results files: each line is the JSON of one run with its numbers, config, seed, versions and commit."""

import json
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sanp.core.errors import SanpError
from sanp.experiments.run_folder import read_report, read_run

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
    """Adds a line to the results file ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_results(path: Path) -> Iterator[Line]:
    """The lines of the results file ``path``; none if the file does not exist."""
    if not path.exists():
        return
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield json.loads(text)
        except ValueError as error:
            raise SanpError(f"{path}, line {number} is not JSON ({error}): remove it and run that row again") from error


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
