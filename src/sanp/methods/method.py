"""What a pruning method is: what it adapts to, and the stages that turn a dense network into a pruned one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import nn

from sanp.fit import Stages, Task, fit_stages, with_teacher
from sanp.gate import MakeSPM, gate
from sanp.network import GatedNetwork
from sanp.spm import SPMConfig


class Method(Protocol):
    """One row of the paper's tables."""

    @property
    def name(self) -> str:
        """What the command line and files call it."""
        ...

    @property
    def layer_adaptive(self) -> bool:
        """L-a: the pruning rate differs between layers."""
        ...

    @property
    def sample_adaptive(self) -> bool:
        """S-a: the decisions depend on the image."""
        ...

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """From a trained dense network to a pruned one that meets ``task.budget``; returns the latter."""
        ...


@runtime_checkable
class Gating(Protocol):
    """A method whose pruned networks are gated: files of it are loaded into what this builds."""

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """A copy of a network with the method's own SPMs, untrained."""
        ...


def gate_as(
    method: str,
    make_spm: MakeSPM,
    net: nn.Module,
    example: Any,
    *,
    spm: SPMConfig,
    skip: Sequence[str] = (),
    shortcuts: bool = True,
) -> GatedNetwork:
    """A gated copy of a network that knows whose SPMs it has."""
    gated = gate(net, example, spm=spm, skip=skip, shortcuts=shortcuts, make_spm=make_spm)
    gated.origin = replace(gated.origin, method=method)
    return gated


@dataclass(frozen=True, kw_only=True)
class GatingMethod:
    """A method that is an SPM of its own kind, trained as SANP is: gate, warm up, train jointly."""

    name: str
    layer_adaptive: bool
    sample_adaptive: bool
    make_spm: MakeSPM

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """The network with an SPM in every convolution that can have one."""
        return gate_as(self.name, self.make_spm, net, example, spm=spm, skip=skip, shortcuts=shortcuts)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Gates the network and trains it in the paper's stages."""
        gated = self.gate(net, task.example(), spm=task.spm)
        finished = yield from fit_stages(gated, with_teacher(task, net))
        return finished
