"""Self-Adaptive Network Pruning: a convolutional network that computes only the channels an image needs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; a running program loads each name when it is first used
    from sanp import backbones, data, methods
    from sanp.checkpoint import load, save
    from sanp.core.errors import SanpError
    from sanp.engine import compile
    from sanp.engine.onnx.exporting import export
    from sanp.evaluation import Report, evaluate
    from sanp.experiments.shipped import pretrained
    from sanp.gating.gating import gate
    from sanp.gating.network import GatedNetwork
    from sanp.spm.module import SPMConfig
    from sanp.spm.recording import Gates, record
    from sanp.training.budget import Budget, ObjectiveConfig
    from sanp.training.config import FitConfig
    from sanp.training.controller import ControllerConfig
    from sanp.training.fitting import fit
    from sanp.training.history import History
    from sanp.training.pretraining import pretrain

__version__ = "0.1.0"

_MODULES = ("backbones", "data", "engine", "lightning", "methods", "testing")
_HOMES = {
    "checkpoint": ("load", "save"),
    "core.errors": ("SanpError",),
    "engine": ("compile",),
    "engine.onnx.exporting": ("export",),
    "evaluation": ("Report", "evaluate"),
    "experiments.shipped": ("pretrained",),
    "gating.gating": ("gate",),
    "gating.network": ("GatedNetwork",),
    "spm.module": ("SPMConfig",),
    "spm.recording": ("Gates", "record"),
    "training.budget": ("Budget", "ObjectiveConfig"),
    "training.config": ("FitConfig",),
    "training.controller": ("ControllerConfig",),
    "training.fitting": ("fit",),
    "training.history": ("History",),
    "training.pretraining": ("pretrain",),
}
"""the module of each public name; torch alone takes over a second to load, and ``sanp --help`` needs none of it"""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sanp.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sanp' has no attribute {name!r}")
    value = getattr(import_module(f"sanp.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOME_OF})


__all__ = [
    "Budget",
    "ControllerConfig",
    "FitConfig",
    "GatedNetwork",
    "Gates",
    "History",
    "ObjectiveConfig",
    "Report",
    "SPMConfig",
    "SanpError",
    "backbones",
    "compile",
    "data",
    "evaluate",
    "export",
    "fit",
    "gate",
    "load",
    "methods",
    "pretrain",
    "pretrained",
    "record",
    "save",
]
