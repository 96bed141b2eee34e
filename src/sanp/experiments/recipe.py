"""A recipe: everything that makes a run, as one TOML file; the presets are what the two ways of training differ in."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sanp.backbones import BACKBONES
from sanp.core.checks import check_fields
from sanp.core.errors import SanpError, unknown_name
from sanp.experiments.settings import build, to_dict, to_toml
from sanp.gating.amount import parse_budget
from sanp.methods import METHOD_CONFIGS, METHODS, Method, method_named
from sanp.methods.autopruner import AutoPrunerConfig
from sanp.methods.cg import CGConfig
from sanp.methods.d2nn import D2NNConfig
from sanp.methods.fbs import FBSConfig
from sanp.methods.fcp import FCPConfig
from sanp.methods.ns import NSConfig
from sanp.methods.rnp import RNPConfig
from sanp.methods.weight import WeightConfig
from sanp.spm.module import SPMConfig
from sanp.training.budget import ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig

FORMAT = 1
"""the version of what stands in a recipe, which a file may give as ``format``"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run."""

    data: str = "digits"
    """digits, cifar10, cifar100 or imagefolder:PATH"""
    backbone: str = "m_cifarnet"
    """m_cifarnet, vgg19 or resnet18"""
    method: str = "sanp"
    """the pruning method"""
    budget: str = "35%"
    """computation to keep: a share (35%) or multiply-adds (60M)"""
    preset: Literal["quick", "paper"] = "quick"
    """quick reaches the budget in few epochs; paper follows the text to the letter"""
    seed: int = 0
    """same seed, same result"""
    batch_size: int = 128
    """images in a training step"""
    image_size: int = 32
    """side of the images, for data that can be resized"""
    limit: int | None = None
    """train on so many images only"""
    pretrained: str | None = None
    """start from the dense network in this file, or of this name in the package, instead of pretraining"""
    threads: int | None = None
    """processor threads; all if not given"""
    test_every: int = 1
    """epochs between two evaluations on the test set; 0 for the end only"""
    spm: SPMConfig = field(default_factory=SPMConfig)
    """the Saliency-and-Pruning Modules"""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """the cost loss"""
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    """the weight of the cost loss"""
    fit: FitConfig = field(default_factory=FitConfig)
    """the three stages"""
    fbs: FBSConfig = field(default_factory=FBSConfig)
    """method fbs, Feature Boosting and Suppression"""
    ns: NSConfig = field(default_factory=NSConfig)
    """method ns, Network Slimming"""
    fcp: FCPConfig = field(default_factory=FCPConfig)
    """method fcp, filter clustering"""
    cg: CGConfig = field(default_factory=CGConfig)
    """method cg, Channel Gating"""
    autopruner: AutoPrunerConfig = field(default_factory=AutoPrunerConfig)
    """method autopruner"""
    weight: WeightConfig = field(default_factory=WeightConfig)
    """method weight, single weights"""
    rnp: RNPConfig = field(default_factory=RNPConfig)
    """method rnp, Runtime Neural Pruning"""
    d2nn: D2NNConfig = field(default_factory=D2NNConfig)
    """method d2nn, Dynamic Deep Neural Networks"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.backbone not in BACKBONES:
            raise unknown_name("backbone", self.backbone, BACKBONES)
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        parse_budget(self.budget)
        if self.batch_size < 2:
            raise SanpError(f"batch_size {self.batch_size}: batch norm needs at least 2 images in a batch")
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise SanpError(f"threads {self.threads}: give at least 1, at most 1024")
        if not 0 <= self.seed < 2**63:
            raise SanpError(f"seed {self.seed}: give a whole number, 0 or more, of 63 bits")
        if self.test_every < 0:
            raise SanpError(f"test_every {self.test_every}: give 0 or more")

    def pruning(self) -> Method:
        """The method with its own section's settings."""
        return method_named(self.method, getattr(self, self.method) if self.method in METHOD_CONFIGS else None)

    def as_dict(self) -> dict[str, Any]:
        """All settings that this run has, as plain values: not the sections of methods that are not its own."""
        return to_dict(self, without=other_methods(self.method))

    def as_toml(self) -> str:
        """The recipe as a file holds it."""
        return f"format = {FORMAT}\n{to_toml(self, without=other_methods(self.method))}"


def other_methods(method: object) -> list[str]:
    """The sections that are settings of other methods than this."""
    return [name for name in METHOD_CONFIGS if name != method]


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {},
    # PAPER 4.1.2: what the text gives; momentum, weight decay and the numbers of epochs it does not give.
    "paper": {
        "batch_size": 256,
        "spm": {"bias": "none", "start": 1.0, "standardize": False, "noise": 1.0, "soft_share": 0.5, "most": "none"},
        "objective": {"penalty": "saliency", "reopen": False, "runaway": 0.0},
        "controller": {"strength": 0.01, "lowest": -0.01, "highest": 0.01, "memory": 0.9, "anneal": 0.0},
        "fit": {
            "pretrain_epochs": 300,
            "warmup_epochs": 100,
            "joint_epochs": 300,
            "lr": 0.1,
            "pretrain_lr": 0.1,
            "nesterov": False,
            "schedule": "step",
            "spm_optimizer": "sgd",
            "spm_lr": 0.1,
            "label_smoothing": 0.0,
            "distill": 0.0,
            "settle": 0.0,
            "norm_batches": 0,
            "calibrate_images": 0,
        },
    },
}


def make_recipe(settings: Mapping[str, Any], where: str = "the recipe") -> Recipe:
    """A recipe from plain values on top of those of its preset."""
    version, preset = settings.get("format", FORMAT), settings.get("preset", "quick")
    if version != FORMAT:
        raise SanpError(f"{where} has format {version!r}, this sanp reads {FORMAT}: use the sanp that wrote it")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    given = {name: value for name, value in settings.items() if name != "format"}
    method = given.get("method", Recipe.method)
    for other in other_methods(method):
        if other in given:
            raise SanpError(
                f"{where} has settings of method {other}, and the method is {method}: leave section {other} out, or "
                f"choose method {other}"
            )
    return build(Recipe, merge(PRESETS[preset], given), where)


def read_recipe(path: Path) -> dict[str, Any]:
    """The settings in a recipe file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SanpError(f"cannot read the recipe {path} ({error.strerror}): give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SanpError(f"{path} is not a TOML file ({error}): correct it there") from error


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both settings, ``above`` winning; sections are merged, not replaced."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
