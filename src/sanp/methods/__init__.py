"""Every pruning method, one file each; METHODS is the table of them."""

from dataclasses import replace
from typing import Any

from sanp.core.checks import check_kind
from sanp.core.errors import SanpError, unknown_name
from sanp.methods.autopruner import AutoPruner, AutoPrunerConfig
from sanp.methods.cg import CG, CGConfig
from sanp.methods.d2nn import D2NN, D2NNConfig
from sanp.methods.dense import Dense
from sanp.methods.fbs import FBS, FBSConfig
from sanp.methods.fcp import FCP, FCPConfig
from sanp.methods.fixed_k import FixedK
from sanp.methods.l1 import L1
from sanp.methods.method import Method
from sanp.methods.ns import NS, NSConfig
from sanp.methods.rnp import RNP, RNPConfig
from sanp.methods.sanp import SANP
from sanp.methods.static import Static
from sanp.methods.weight import Weight, WeightConfig

METHODS: dict[str, Method] = {
    "sanp": SANP(),
    "fixed_k": FixedK(),
    "static": Static(),
    "fbs": FBS(),
    "ns": NS(),
    "fcp": FCP(),
    "cg": CG(),
    "l1": L1(),
    "autopruner": AutoPruner(),
    "weight": Weight(),
    "rnp": RNP(),
    "d2nn": D2NN(),
    "dense": Dense(),
}

METHOD_CONFIGS: dict[str, type] = {
    "fbs": FBSConfig,
    "ns": NSConfig,
    "fcp": FCPConfig,
    "cg": CGConfig,
    "autopruner": AutoPrunerConfig,
    "weight": WeightConfig,
    "rnp": RNPConfig,
    "d2nn": D2NNConfig,
}
"""The settings that a method has besides those of every run."""


def method_named(name: str, config: Any = None) -> Method:
    """The method of this name, with settings of its own if some are given; an unknown name is an error."""
    check_kind("the method", name, str, "a name")
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    if config is None:
        return METHODS[name]
    wanted = METHOD_CONFIGS.get(name)
    if wanted is None or not isinstance(config, wanted):
        has = "has no settings of its own" if wanted is None else f"takes {wanted.__name__}"
        raise SanpError(f"method {name} {has}, and was given {type(config).__name__}")
    return replace(METHODS[name], config=config)  # type: ignore[type-var]


__all__ = ["METHODS", "METHOD_CONFIGS", "Method", "method_named"]
