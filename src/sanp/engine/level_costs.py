"""The mean cost of images at any common level of a network's gates, by a compiled copy: one image takes a fifth of the
time that torch needs, and nothing is compiled again for another level."""

import warnings
from typing import Any

import torch
from torch import Tensor

from sanp.core.errors import SanpError, SlowWarning
from sanp.core.modules import evaluating
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.engine.library import Unavailable, native_library
from sanp.gating.accounting import mean_kept
from sanp.gating.dial import set_level
from sanp.gating.network import GatedNetwork

WORTH_COMPILING = 2e9
"""multiply-adds of the images from which on compiling saves time"""


class CannotTell(Exception):
    """The engine cannot say what its gates decided, most often since an output is NaN or infinite."""


class CompiledCosts:
    """The costs of a network's images; ``engine`` is its copy, all of whose gates have the level ``level``."""

    def __init__(self, network: GatedNetwork, engine: Engine, level: float, batches: list[Tensor]) -> None:
        self._network, self._engine, self._level, self._batches = network, engine, level, batches
        self.cannot_tell = CannotTell

    def first(self, count: int) -> "CompiledCosts":
        """The same for the first images of the first batch."""
        return CompiledCosts(self._network, self._engine, self._level, [self._batches[0][:count]])

    def saliencies(self) -> list[Tensor]:
        """Of the first batch, by layer."""
        return [each + self._level for each in self._run(self._batches[0], 0.0)[1].values()]

    def kept_at(self, level: float) -> float:
        """The share of the dense FLOPs at a level, as a mean over the images; :class:`CannotTell` where it has none."""
        found = [(self._run(batch, level - self._level)[0], len(batch)) for batch in self._batches]
        return sum(kept * count for kept, count in found) / sum(count for _, count in found)

    def _run(self, batch: Tensor, lift: float) -> tuple[float, dict[str, Tensor]]:
        scores: dict[str, Tensor] = {}
        found = self._engine.run_recorded(batch, lift=lift, scores=scores)
        if found is None:
            raise CannotTell
        return mean_kept(self._network.cost, {name: each.double() for name, each in found[1].items()}), scores


def compiled_costs(network: GatedNetwork, batches: list[Any]) -> CompiledCosts | None:
    """The costs of a network's images by the engine; None where it would save no time, or cannot tell.

    Gives all gates of the network the level of the first. A cap is left aside.
    """
    spms = [layer.spm for layer in network.layers.values()]
    if not all(spm.binarize.level_is_saliency for spm in spms) or not _fits(network, batches):
        return None
    level = float(spms[0].level)
    set_level(network, level)
    with network.uncapped():
        engine = _engine(network, batches)
    return None if engine is None else CompiledCosts(network, engine, level, batches)


def compiled_kept(network: GatedNetwork, batches: list[Any]) -> float | None:
    """The share of the dense FLOPs that is computed for these batches, under the network's cap if it has one.

    None where the engine would save no time, or cannot tell.
    """
    engine = _engine(network, batches) if _fits(network, batches) else None
    try:
        return None if engine is None else CompiledCosts(network, engine, 0.0, batches).kept_at(0.0)
    except CannotTell:
        return None


def _engine(network: GatedNetwork, batches: list[Tensor]) -> Engine | None:
    """The compiled network, if all of it is native."""
    with warnings.catch_warnings(), evaluating(network):
        warnings.simplefilter("ignore", SlowWarning)
        try:
            engine = compile(network, batches[0][:1], tune=False)
        except SanpError:  # torch will say it of the images
            return None
    return engine if engine.plan.native else None


def _fits(network: GatedNetwork, batches: list[Any]) -> bool:
    """Whether the engine can take these batches, and there are so many images that compiling pays."""
    if not all(isinstance(batch, Tensor) and batch.dtype == torch.float32 and batch.is_cpu for batch in batches):
        return False
    if (
        sum(map(len, batches)) * network.dense_flops < WORTH_COMPILING
        or len({batch.shape[1:] for batch in batches}) > 1
    ):
        return False
    if torch.is_autocast_enabled("cpu") or not all(each.is_cpu for each in network.parameters()):
        return False
    try:
        native_library()
    except Unavailable:
        return False
    return True
