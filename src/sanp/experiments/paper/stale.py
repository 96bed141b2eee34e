"""Stale results lines: those of runs whose settings are not those of the recipe any more."""

from collections.abc import Iterable, Mapping
from typing import Any

from sanp.experiments.compare import PRETRAINING
from sanp.experiments.recipe import Recipe
from sanp.methods.static import StaticConfig

SCOPE = {"seed", "limit", "fit.pretrain_epochs", "fit.warmup_epochs", "fit.joint_epochs"}
"""how much of a recipe was run, and with which seed: told in the table, not a reason to be stale"""
WITHOUT_EFFECT = {"preset", "threads", "device", "test_every", "pretrained"}
"""settings that do not change what a run computes; of ``pretrained``, the settings of pretraining say what matters"""
USED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dense", "dense_longer", "uniform", "random", "depgraph", "l1", "ns", "fcp", "autopruner"), ()),
    **dict.fromkeys(("weight", "fbs", "slimmable"), ()),
    **dict.fromkeys(("cg", "rnp", "d2nn"), ("controller",)),
}
"""which of the sections spm, objective and controller a method uses; all of them if it is not here"""
OF_DRAWN_GATES = {f"spm.{name}" for name in "noise soft_share per gradient slope shift keep_one".split()} | {
    "fit.settle"
}
"""settings of the gates that SANP draws in training, for methods that decide otherwise"""
ONLY_FALLS = {f"controller.{name}" for name in "strength lowest highest memory estimate".split()}
"""settings of λ, for methods whose target falls as SANP's does, but which have no λ"""
BESIDES: dict[str, set[str]] = {
    "fixed_k": OF_DRAWN_GATES | ONLY_FALLS | {"objective"},
    "gumbel": OF_DRAWN_GATES | ONLY_FALLS | {"objective", "spm.bias", "spm.most", "fit.warmup_trains"},
    "manidp": OF_DRAWN_GATES
    | {"objective", "controller", "spm.bias", "spm.reduction", "spm.standardize", "fit.warmup_trains"},
    "static": {"spm.standardize", "spm.centre"},
}
"""settings and whole sections that these methods do not use, of those that methods with the section spm have"""
UNSCALED = {"spm.gradient", "spm.most"}
"""settings of the saliency as a factor, which STATIC has only with ``scales``"""
OF_SPMS = {"fit.settle", "fit.spm_lr", "fit.spm_optimizer", "fit.warmup_trains"}
"""settings of training that only methods with the section spm use, and those of ``ALSO``"""
ALSO = {"fbs": {"fit.spm_lr", "fit.spm_optimizer"}}
"""FBS trains its own predictors with the optimizer of the SPMs"""
LACKED: dict[str, Any] = {"spm.most": None, "spm.gradient": "product without the noise"}
"""settings that older lines lack, with what the code of that time did; other settings had their present default"""


def changed(before: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """The settings of a run that differ from those of ``recipe``, with both values, in words.

    ``before`` has the settings of the run, nested by section, as a results line does. Settings that the method does not
    use, that do not change what is computed, and the epochs, images and seed are left out.
    """
    then, now = dict(flat_settings(before)), dict(flat_settings(recipe.as_dict()))
    default = dict(flat_settings(Recipe(method=recipe.method).as_dict()))
    found = []
    for name in sorted(then.keys() | now.keys()):
        if not _counts(name, recipe):
            continue
        old, new = then.get(name, LACKED.get(name, default.get(name))), now.get(name)
        if old != new:
            found.append(f"{name} {_said(old)}, now {_said(new)}")
    return found


def _counts(name: str, recipe: Recipe) -> bool:
    """Whether a setting of this dotted name can change the results of a recipe's method."""
    section, method = name.partition(".")[0], recipe.method
    besides = BESIDES.get(method, set()) | (set() if _scales(recipe) else UNSCALED)
    if name in besides or section in besides:
        return False
    used = USED.get(method, ("spm", "objective", "controller"))
    if name in SCOPE | WITHOUT_EFFECT or (section in ("spm", "objective", "controller") and section not in used):
        return False
    if method == "dense" and section == "fit":
        return name.partition(".")[2] in PRETRAINING
    return name not in OF_SPMS or "spm" in used or name in ALSO.get(method, ())


def _scales(recipe: Recipe) -> bool:
    return not isinstance(recipe.method_config, StaticConfig) or recipe.method_config.scales


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested settings as pairs of a dotted name and a value."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _said(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
