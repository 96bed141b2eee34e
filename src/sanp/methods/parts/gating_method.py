"""Methods that gate the network: what loading a file asks of them, and a base that makes and trains the gates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from sanp.gating.amount import parse_budget
from sanp.gating.budget_range import check_reachable, parse_range
from sanp.gating.gating import MakeSPM, gate, planned_cost
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPMConfig
from sanp.training.finish import finish_cap
from sanp.training.stage import Stage, Stages
from sanp.training.task import Task, with_teacher
from sanp.training.three_stages import fit_stages


@runtime_checkable
class Gating(Protocol):
    """A method whose pruned networks are gated; :func:`sanp.load` uses it to build the network that a file is of."""

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """A copy of ``net`` with untrained SPMs of the method; the arguments are those of :func:`sanp.gate`."""
        ...


@dataclass(frozen=True, kw_only=True)
class GatingMethod:
    """Base of the methods that gate the network; each says how its SPMs are made and how they are trained."""

    name: str
    layer_adaptive: bool
    sample_adaptive: bool
    simplified: str = ""

    def spm_maker(self) -> MakeSPM:
        """A function that makes the SPMs of one network."""
        raise NotImplementedError

    def prepare(self, gated: GatedNetwork) -> None:
        """Changes a network that has just been gated, if the method needs that; does nothing by default."""

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """The stages that train a gated network to the budget; by default those of SANP."""
        yield from fit_stages(gated, task)

    def finished(self, gated: GatedNetwork, net: nn.Module, example: Tensor) -> nn.Module:
        """The network that the method returns in the end; by default the gated one.

        ``net`` is the dense network that was gated, ``example`` an input for it.
        """
        return gated

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """A copy of ``net`` with untrained SPMs of the method; the arguments are those of :func:`sanp.gate`."""
        gated = gate(net, example, spm=spm, skip=skip, shortcuts=shortcuts, make_spm=self.spm_maker())
        gated.origin = replace(gated.origin, method=self.name)
        self.prepare(gated)
        return gated

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one open channel in each gated layer already exceeds the budget."""
        latency = None
        if task.timer is not None:
            latency = task.timer(task.start or self.gate(net, task.example(net), spm=task.spm))
        check_reachable(task.budget, planned_cost(net, task.example(net)), latency, task.max_flops)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Gates the network, then trains it."""
        example = task.example(net)
        gated = task.start or self.gate(net, example, spm=task.spm)
        if task.timer is not None:
            gated.latency = task.timer(gated)
        if parse_range(task.budget) is None:
            gated.budget = parse_budget(task.budget)
        yield from self.train(gated, with_teacher(task, net))
        finish_cap(gated, task)
        return self.finished(gated, net, example)
