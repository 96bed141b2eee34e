"""The interface of a pruning method."""

from typing import Protocol

from torch import nn

from sanp.training.stage import Stages
from sanp.training.task import Task


class Method(Protocol):
    """A pruning method: its name, what it adapts to, and the stages that turn a dense network into a pruned one."""

    @property
    def name(self) -> str:
        """The name on the command line and in files."""
        ...

    @property
    def layer_adaptive(self) -> bool:
        """L-a in the paper's tables: the pruning rate can differ between layers."""
        ...

    @property
    def sample_adaptive(self) -> bool:
        """S-a in the paper's tables: the decisions depend on the image."""
        ...

    @property
    def simplified(self) -> str:
        """What is left out of the published method, where its authors might not accept the result as theirs.

        Tables mark such a method. Empty for a faithful one.
        """
        ...

    def check(self, net: nn.Module, task: Task) -> None:
        """Raises an error if the method cannot meet ``task.budget`` on the network ``net``; called before training."""
        ...

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Yields the stages that turn the trained dense network ``net`` into a pruned one that meets ``task.budget``;
        returns the pruned network."""
        ...
