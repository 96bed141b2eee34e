"""What a pruning method is: what it adapts to, and the stages that turn a dense network into a pruned one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from sanp.gating.amount import parse_budget
from sanp.gating.cost import kept_for
from sanp.gating.gating import MakeSPM, gate, planned_cost
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPMConfig
from sanp.training.fitting import fit_stages
from sanp.training.stage import Stage, Stages
from sanp.training.task import Task, with_teacher


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

    def check(self, net: nn.Module, task: Task) -> None:
        """An error, before anything is trained, for a budget that the method cannot meet on this network."""
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


@dataclass(frozen=True, kw_only=True)
class GatingMethod:
    """What methods with SPMs of their own kind share; one says what makes them, and how they are trained."""

    name: str
    layer_adaptive: bool
    sample_adaptive: bool

    def spm_maker(self) -> MakeSPM:
        """What makes the SPMs of one network."""
        raise NotImplementedError

    def prepare(self, gated: GatedNetwork) -> None:
        """Changes a network that has just been gated; leaves it as it is unless the method needs something."""

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """The stages from a gated network to one that meets the budget; SANP's, unless the method has others."""
        yield from fit_stages(gated, task)

    def finished(self, gated: GatedNetwork, net: nn.Module, example: Tensor) -> nn.Module:
        """What is left of the network ``net`` in the end."""
        return gated

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """A copy of a network with the method's SPMs in every convolution that can have one, untrained."""
        gated = gate(net, example, spm=spm, skip=skip, shortcuts=shortcuts, make_spm=self.spm_maker())
        gated.origin = replace(gated.origin, method=self.name)
        self.prepare(gated)
        return gated

    def check(self, net: nn.Module, task: Task) -> None:
        """One open channel in each gated layer must not cost more than the budget."""
        kept_for(task.budget, planned_cost(net, task.example()))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Gates the network and trains it."""
        example = task.example()
        gated = self.gate(net, example, spm=task.spm)
        gated.budget = parse_budget(task.budget)
        yield from self.train(gated, with_teacher(task, net))
        return self.finished(gated, net, example)
