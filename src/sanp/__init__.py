"""Self-Adaptive Network Pruning: a convolutional network that computes only the channels an image needs."""

from importlib import import_module
from typing import Any

from sanp import backbones, data, methods
from sanp.checkpoint import load, save
from sanp.core.errors import SanpError
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

_ON_DEMAND = {"compile": "sanp.engine", "export": "sanp.engine.onnx.exporting"}
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
