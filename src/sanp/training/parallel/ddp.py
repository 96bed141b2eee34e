"""Shares a training step between processes by PyTorch's DistributedDataParallel; each runs its slice of the batch.

It wraps the loss of a step and not the network, so that the loss may run the network as often as it likes.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sanp.core import distributed
from sanp.core.batch_slice import BatchSlice, using_slice
from sanp.core.errors import SanpError
from sanp.training.parallel.sync_batch import SharedBatch

if TYPE_CHECKING:
    from sanp.training.stage import Loader, Outcome, StepLoss


def part_of(loader: "Loader") -> "Loader":
    """A loader of this process's slice of every batch, if ``loader`` can be divided.

    Any other loader is taken to give such slices already.
    """
    if distributed.world() == 1 or not hasattr(loader, "part"):
        return loader
    part: Loader = loader.part(distributed.rank(), distributed.world())
    return part


def over_ranks(step_loss: "StepLoss", net: nn.Module, others: list[nn.Parameter]) -> "StepLoss":
    """The same step loss, but for the batch of all processes: gradients are averaged over them.

    ``others`` are trained parameters that are not in ``net``. With one process, this is ``step_loss`` itself.
    """
    if distributed.world() == 1:
        return step_loss
    step = _Step(step_loss, net, others)
    wrapped = DistributedDataParallel(step, find_unused_parameters=True)  # a method need not use all

    def shared(x: Tensor, y: Any, progress: float) -> "Outcome":
        own = _own_slice(len(x))
        with using_slice(own), SharedBatch():
            loss: Tensor = wrapped(x, y, progress)
        outcome = step.outcome
        assert outcome is not None
        step.outcome = None
        return _averaged(outcome, loss, own)

    return shared


class _Step(nn.Module):
    """The loss of a step as a module, which DistributedDataParallel can wrap; ``outcome`` holds all its results."""

    def __init__(self, step_loss: "StepLoss", net: nn.Module, others: list[nn.Parameter]) -> None:
        super().__init__()
        self.net = net
        self.others = nn.ParameterList(others)
        self.never = nn.Parameter(torch.zeros(()))  # PyTorch warns if it finds no unused parameter
        self.outcome: Outcome | None = None
        self._step_loss = step_loss

    def forward(self, x: Tensor, y: Any, progress: float) -> Tensor:
        """The loss of this process's slice."""
        self.outcome = self._step_loss(x, y, progress)
        return self.outcome.loss


def _own_slice(count: int) -> BatchSlice:
    counts = distributed.counts(count)
    if min(counts) < 2:  # with one image an SPM uses running statistics, and the others would wait for its sums
        raise SanpError(f"a batch gives the processes {counts} images: make batch_size at least {2 * len(counts)}")
    start = sum(counts[: distributed.rank()])
    return BatchSlice(start, start + count, sum(counts))


def _averaged(outcome: "Outcome", loss: Tensor, own: BatchSlice) -> "Outcome":
    """The outcome with its numbers averaged over the whole batch.

    The loss is scaled so that the mean of all processes' gradients is the gradient of the whole batch.
    """
    ours = (loss.item(), outcome.shown, outcome.correct, outcome.kept)
    means = distributed.weighted_mean([value or 0.0 for value in ours], own.share)
    value, shown, correct, kept = (None if mine is None else mean for mine, mean in zip(ours, means, strict=True))
    outcome.loss = loss * (own.share * distributed.world())
    outcome.value, outcome.shown, outcome.correct, outcome.kept = value, shown, correct, kept
    return outcome
