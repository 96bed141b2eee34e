"""What a pruning method is: what it adapts to, and the stages that turn a dense network into a pruned one."""

from dataclasses import dataclass, replace
from typing import Protocol

from torch import nn

from sanp.fit import Stages, Task, fit_stages, with_teacher
from sanp.gate import MakeSPM, gate


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

    @property
    def make_spm(self) -> MakeSPM:
        """Builds the SPM of one convolution, for files to be loaded into."""
        ...

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """From a trained dense network to a pruned one that meets ``task.budget``; returns the latter."""
        ...


@dataclass(frozen=True, kw_only=True)
class GatingMethod:
    """A method that is an SPM of its own kind, trained as SANP is: gate, warm up, train jointly."""

    name: str
    layer_adaptive: bool
    sample_adaptive: bool
    make_spm: MakeSPM

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Gates the network and trains it in the paper's stages."""
        gated = gate(net, task.example(), spm=task.spm, make_spm=self.make_spm)
        gated.origin = replace(gated.origin, method=self.name)
        finished = yield from fit_stages(gated, with_teacher(task, net))
        return finished
