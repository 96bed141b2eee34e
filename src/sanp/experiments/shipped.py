"""Networks that come with the package: run folders with half-precision weights and a results line."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from sanp.backbones import build
from sanp.checkpoint import load
from sanp.core.errors import SanpError
from sanp.experiments.inputs import read_inputs

WEIGHTS = Path(__file__).parent / "weights"
FILES = ("config.toml", "report.json", "metrics.jsonl", "inputs.json", "result.json", "model.safetensors")
"""the files of such a folder; ``result.json`` is the results line of the run"""


def pretrained(name: str) -> nn.Module:
    """A network that comes with the package, in evaluation mode and single precision; ``name`` is one of :func:`names`.

    ``read_inputs(shipped(name))`` says how its images must be normalised, :func:`result_of` how good it is.
    """
    folder = shipped(name)
    inputs = read_inputs(folder)
    fresh = build(result_of(name)["backbone"], num_classes=inputs.num_classes, image_size=inputs.image_size)
    return load(folder / "model.safetensors", fresh).eval()


def names() -> list[str]:
    """The names of the networks that come with the package."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/model.safetensors"))


def of_one_budget() -> list[str]:
    """The names of those that were pruned to one budget: they end in its percentage."""
    return [name for name in names() if name.rpartition("-")[2].isdigit()]


def shipped(name: str) -> Path:
    """The run folder of a network that comes with the package, for reading only."""
    if name not in names():
        known = ", ".join(names()) or "none in this installation"
        raise SanpError(f"no pretrained network is called {name!r}: there are {known}")
    return WEIGHTS / name


def run_named(run: Path) -> Path:
    """The run folder that a user named by its path, or by the name of a network that comes with the package."""
    return shipped(str(run)) if not run.exists() and str(run) in names() else run


def weights_named(given: str) -> str:
    """The weights file that a user named by its path, or by the name of a network that comes with the package."""
    run = run_named(Path(given))
    return given if run == Path(given) else str(run / "model.safetensors")


def result_of(name: str) -> dict[str, Any]:
    """The results line of the run that the network ``name`` came from."""
    path = shipped(name) / "result.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {**{key: found[key] for key in ("backbone", "data", "error", "flops")}, **found}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SanpError(f"{path} is damaged ({type(error).__name__}: {error}): install sanp again") from error
