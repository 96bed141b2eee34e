"""The features of gated layers as ManiDP compares them: before they are gated, averaged over positions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sanp.gating.network import GatedNetwork


class PooledFeatures:
    """Collects the features of every gated layer in a forward, averaged over positions, before they are gated."""

    def __init__(self, gated: GatedNetwork) -> None:
        self.layers = gated.layers
        self.of: dict[str, list[Tensor]] = {}
        """(N, C_out) of each call, by layer"""

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Inside, every training forward adds its features; :meth:`taken` empties them."""
        with ExitStack() as hooks:
            for name, layer in self.layers.items():
                last = layer.conv if layer.norm is None else layer.norm
                hooks.callback(last.register_forward_hook(self._keep(name)).remove)
            yield
        self.of.clear()

    def _keep(self, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if not module.training:  # an evaluation between two epochs
                return
            self.of.setdefault(name, []).append(F.relu(output).flatten(2).mean(2) if output.dim() > 2 else output)

        return keep

    def taken(self) -> dict[str, list[Tensor]]:
        """The features since the last time, which are forgotten."""
        found, self.of = self.of, {}
        return found
