"""A recipe: all settings of a run, as one TOML file; and the presets, sets of settings to start from."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

from sanp.backbones import BACKBONES
from sanp.core.checks import check_fields
from sanp.core.errors import SanpError, shown, unknown_name
from sanp.core.files import read_bytes
from sanp.core.limits import LARGEST_RECIPE, MOST_DOTS
from sanp.data.held_out import check_amount
from sanp.experiments.own_network import is_own
from sanp.experiments.run_settings import RunSettings
from sanp.experiments.settings import OWN_SECTION, build_config, kinds, to_toml
from sanp.gating.budget_range import check_budget, is_time
from sanp.gating.cap import parse_cap
from sanp.methods import METHODS, Method, config_of, method_named
from sanp.methods.parts.gating_method import Gating
from sanp.spm.module import SPMConfig
from sanp.training.budget import ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig

RECIPE_FORMAT = 1
"""version of the recipe format; a file may name it as ``format``"""


@dataclass(frozen=True, kw_only=True)
class Recipe(RunSettings):
    """All settings of a run: the plain ones, then those of each part, which a file has in sections."""

    spm: SPMConfig = field(default_factory=SPMConfig)
    """the Saliency-and-Pruning Modules"""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """the cost loss"""
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    """λ, the weight of the cost loss"""
    fit: FitConfig = field(default_factory=FitConfig)
    """the stages of training"""
    method_config: Any = field(default=None, metadata=OWN_SECTION)
    """the method's own settings; in a file they are the section with the method's name"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.backbone not in BACKBONES and not is_own(self.backbone):
            raise unknown_name("backbone", self.backbone, BACKBONES)
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        config = config_of(self.method)
        if self.method_config is None and config is not None:
            object.__setattr__(self, "method_config", config())
        check_budget(self.budget)
        if is_time(self.budget) and not isinstance(self.pruning_method(), Gating):
            raise SanpError(
                f"budget {self.budget} is a time, which is for methods that gate: {self.method} does not; give a share "
                "(35%) or a count (60M)"
            )
        if self.max_flops is not None:
            parse_cap(self.max_flops)
            if not isinstance(self.pruning_method(), Gating):
                raise SanpError(f"max_flops {self.max_flops} is for methods that gate: {self.method} does not")
        if self.batch_size < 2:
            raise SanpError(f"batch_size {self.batch_size}: batch norm needs at least 2 images in a batch")
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise SanpError(f"threads {self.threads}: give at least 1, at most 1024")
        if not 0 <= self.seed < 2**63:
            raise SanpError(f"seed {self.seed}: give a whole number, 0 or more, of 63 bits")
        if self.validate is not None:
            check_amount(self.validate)
        elif self.report_on == "held-out":
            raise SanpError("report_on is held-out, but no image is: set validate to the number of images to hold out")
        if self.least_steps < 0:
            raise SanpError(f"least_steps {self.least_steps}: give 0 or more")
        if self.test_every < 0:
            raise SanpError(f"test_every {self.test_every}: give 0 or more")

    def pruning_method(self) -> Method:
        """The pruning method with its own settings."""
        return method_named(self.method, self.method_config)

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values, nested by section."""
        values = asdict(self)
        own = values.pop("method_config")
        return values if own is None else {**values, self.method: own}

    def as_toml(self) -> str:
        """The recipe as the text of a TOML file."""
        own = "" if self.method_config is None else f"\n[{self.method}]\n{to_toml(self.method_config)}"
        return f"format = {RECIPE_FORMAT}\n{to_toml(self)}{own}"


def sections() -> dict[str, type]:
    """The sections that a recipe may have, by name, with the classes of their settings; methods have sections too."""
    common = {name: kind for name, kind in kinds(Recipe).items() if isinstance(kind, type) and is_dataclass(kind)}
    return {**common, **{name: config for name in METHODS if (config := config_of(name)) is not None}}


def other_methods(method: object) -> list[str]:
    """The names of the sections of all methods except ``method``."""
    return [name for name in METHODS if config_of(name) is not None and name != method]


PRESETS: dict[str, dict[str, Any]] = {
    "quick": {},
    # PAPER 4.1.2 and 3.3; the text gives no values for momentum, weight decay and the numbers of epochs.
    "paper": {
        "batch_size": 256,
        "augment": "standard",
        "spm": {
            "bias": "none",
            "start": 1.0,
            "standardize": False,
            "noise": 1.0,
            "soft_share": 0.5,
            "most": "none",
            "gradient": "literal",
            "keep_one": False,
        },
        "objective": {"penalty": "saliency", "reopen": False, "runaway": 0.0},
        "controller": {
            "strength": 0.01,
            "lowest": -0.01,
            "highest": 0.01,
            "memory": 0.9,
            "anneal": 0.0,
            "estimate": "drawn",
        },
        "static": {"scales": True},
        "fit": {
            "pretrain_epochs": 300,
            "warmup_epochs": 100,
            "warmup_trains": "all but kernels",
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
    """A recipe from plain values, nested by section; settings that are not given are those of the preset.

    ``where`` names the recipe in error messages.
    """
    version, preset = settings.get("format", RECIPE_FORMAT), settings.get("preset", "quick")
    if version != RECIPE_FORMAT:
        raise SanpError(
            f"{where} has format {shown(version)}, this sanp reads {RECIPE_FORMAT}: use the sanp that wrote it"
        )
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
    others = other_methods(method)
    given = merge({name: value for name, value in PRESETS[preset].items() if name not in others}, given)
    own = given.pop(method, None) if isinstance(method, str) and config_of(method) is not None else None
    recipe = build_config(Recipe, given, where)
    if own is None:
        return recipe
    if not isinstance(own, Mapping):
        raise SanpError(f"{where}: {method} is {shown(own)}, but it is a section: write [{method}] and its settings")
    config = config_of(recipe.method)
    assert config is not None
    return replace(recipe, method_config=build_config(config, own, f"{where}, section {method}"))


def read_recipe(path: Path) -> dict[str, Any]:
    """The settings in the recipe file ``path``, as plain values."""
    try:
        text = read_bytes(path, LARGEST_RECIPE).decode("utf-8")
        if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
            raise SanpError(f"{path} has a line with more than {MOST_DOTS} dots: correct it there")
        return tomllib.loads(text)
    except SanpError:
        raise
    except OSError as error:
        raise SanpError(f"cannot read the recipe {path} ({error.strerror}): give a TOML file") from error
    except RecursionError as error:
        raise SanpError(f"{path} has lists or tables nested too deep: correct it there") from error
    except ValueError as error:  # not TOML, not UTF-8, too large, or a number of more than 4300 digits
        raise SanpError(f"{path} is not a TOML file ({error}): correct it there") from error


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of both; those in ``above`` win. Sections are merged, not replaced."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
