"""Self-Adaptive Network Pruning: a convolutional network that computes only the channels an image needs."""

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
from sanp.record import Gates, record
from sanp.spm import SPMConfig

__version__ = "0.1.0"

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
    "data",
    "evaluate",
    "fit",
    "gate",
    "load",
    "methods",
    "record",
    "save",
]
