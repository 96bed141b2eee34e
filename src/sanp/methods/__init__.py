"""The pruning methods, one file each with its settings; imports core, spm, tracing, gating and training.

``METHODS`` is the table of all methods. The folders ``parts`` and ``cutting`` hold code that several methods share.
"""

from dataclasses import replace
from typing import Any

from sanp.core.checks import check_kind
from sanp.core.errors import SanpError, unknown_name
from sanp.methods.autopruner import AutoPruner
from sanp.methods.cg import CG
from sanp.methods.d2nn import D2NN
from sanp.methods.dense import Dense
from sanp.methods.dense_longer import DenseLonger
from sanp.methods.depgraph import DepGraph
from sanp.methods.fbs import FBS
from sanp.methods.fcp import FCP
from sanp.methods.fixed_k import FixedK
from sanp.methods.gumbel import Gumbel
from sanp.methods.l1 import L1
from sanp.methods.manidp import ManiDP
from sanp.methods.ns import NS
from sanp.methods.parts.method import Method
from sanp.methods.random_channels import RandomChannels
from sanp.methods.rnp import RNP
from sanp.methods.sanp import SANP
from sanp.methods.slimmable import Slimmable
from sanp.methods.static import Static
from sanp.methods.uniform import Uniform
from sanp.methods.weight import Weight

METHODS: dict[str, Method] = {
    "sanp": SANP(),
    "fixed_k": FixedK(),
    "static": Static(),
    "fbs": FBS(),
    "gumbel": Gumbel(),
    "manidp": ManiDP(),
    "slimmable": Slimmable(),
    "ns": NS(),
    "fcp": FCP(),
    "cg": CG(),
    "l1": L1(),
    "autopruner": AutoPruner(),
    "weight": Weight(),
    "rnp": RNP(),
    "d2nn": D2NN(),
    "depgraph": DepGraph(),
    "uniform": Uniform(),
    "random": RandomChannels(),
    "dense_longer": DenseLonger(),
    "dense": Dense(),
}


def config_of(method: str) -> type | None:
    """The class of the settings of the method with this name; None if it has no settings of its own."""
    config = getattr(METHODS.get(method), "config", None)
    return None if config is None else type(config)


def method_named(name: str, config: Any = None) -> Method:
    """The method with this name; an error if there is none.

    ``config`` holds the method's own settings, of the class :func:`config_of`; its defaults if None.
    """
    check_kind("the method", name, str, "a name")
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    if config is None:
        return METHODS[name]
    wanted = config_of(name)
    if wanted is None or not isinstance(config, wanted):
        has = "has no settings of its own" if wanted is None else f"takes {wanted.__name__}"
        raise SanpError(f"method {name} {has}, and was given {type(config).__name__}")
    return replace(METHODS[name], config=config)  # type: ignore[type-var]


__all__ = ["METHODS", "Method", "config_of", "method_named"]
