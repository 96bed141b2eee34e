"""Networks that come with the package: run folders with half-precision weights, each with its results line."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from sanp.backbones import build
from sanp.checkpoint import load
from sanp.core.errors import SanpError

WEIGHTS = Path(__file__).parent / "weights"
FILES = ("config.toml", "report.json", "metrics.jsonl", "inputs.json", "result.json", "model.safetensors")
"""of a run folder, and beside them ``result.json``, its results line"""


def pretrained(name: str) -> nn.Module:
    """A trained network in evaluation mode and single precision, by its name.

    ``from sanp.pretrained import inputs_of, result_of``: what its images are normalised with, and its results line.
    """
    line, inputs = result_of(name), inputs_of(name)
    fresh = build(line["backbone"], num_classes=len(inputs["classes"]), image_size=inputs["image_size"])
    return load(shipped(name) / "model.safetensors", fresh).eval()


def names() -> list[str]:
    """What :func:`pretrained` knows."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/model.safetensors"))


def shipped(name: str) -> Path:
    """The run folder of a network that comes with the package; nothing may be written there."""
    if name not in names():
        known = ", ".join(names()) or "none in this installation"
        raise SanpError(f"no pretrained network is called {name!r}: there are {known}")
    return WEIGHTS / name


def run_named(run: Path) -> Path:
    """The run folder that a user means: a path, or the name of a network that comes with the package."""
    return shipped(str(run)) if not run.exists() and str(run) in names() else run


def weights_named(given: str) -> str:
    """The file that a user means: a path, or the name of a network that comes with the package."""
    run = run_named(Path(given))
    return given if run == Path(given) else str(run / "model.safetensors")


def result_of(name: str) -> dict[str, Any]:
    """The results line of the run that a network came from."""
    return _read(shipped(name) / "result.json", ("backbone", "data", "error", "flops"))


def inputs_of(name: str) -> dict[str, Any]:
    """Image size, mean, deviation and class names of the data that a network was trained on."""
    return _read(shipped(name) / "inputs.json", ("image_size", "mean", "std", "classes"))


def _read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {**{key: found[key] for key in wanted}, **found}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SanpError(f"{path} is damaged ({type(error).__name__}: {error}): install sanp again") from error
