"""Self-Adaptive Network Pruning: a convolutional network that computes only the channels an image needs."""

from importlib import import_module
from typing import Any

from sanp import backbones, data, methods
from sanp.budget import ControllerConfig
from sanp.checkpoint import load, save
from sanp.config import FitConfig
from sanp.errors import SanpError
from sanp.evaluate import Report, evaluate
from sanp.fit import fit
from sanp.gate import gate
from sanp.network import GatedNetwork
from sanp.objective import Budget, ObjectiveConfig
from sanp.pretrained import pretrained
from sanp.record import Gates, record
from sanp.spm import SPMConfig

__version__ = "0.1.0"

_ON_DEMAND = {"compile": "sanp.engine", "export": "sanp.export"}
"""what is loaded only when it is used: training needs neither the engine nor ONNX"""
_MODULES = ("engine", "lightning", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sanp.{name}")
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'sanp' has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)


__all__ = [
    "Budget",
    "ControllerConfig",
    "FitConfig",
    "GatedNetwork",
    "Gates",
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
    "pretrained",
    "record",
    "save",
]
