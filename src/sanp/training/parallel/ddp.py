"""One training step by several processes, each on its slice of the batch: PyTorch's DistributedDataParallel.

The step's loss is what is wrapped, not the network: a method's loss may run the network as often as it likes.
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
    """This process's part of every batch, of a loader that can be divided; any other is taken to be a part already."""
    if distributed.world() == 1 or not hasattr(loader, "part"):
        return loader
    part: Loader = loader.part(distributed.rank(), distributed.world())
    return part


def over_ranks(step_loss: "StepLoss", net: nn.Module, others: list[nn.Parameter]) -> "StepLoss":
    """The same loss, but of the batch of all ranks, its gradients averaged over them; ``others`` are not the net's."""
    if distributed.world() == 1:
        return step_loss
    step = _Step(step_loss, net, others)
    wrapped = DistributedDataParallel(step, find_unused_parameters=True)  # which it uses is the method's affair

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
    """A step's loss as a module; what else the step found lies in ``outcome``."""

    def __init__(self, step_loss: "StepLoss", net: nn.Module, others: list[nn.Parameter]) -> None:
        super().__init__()
        self.net = net
        self.others = nn.ParameterList(others)
        self.never = nn.Parameter(torch.zeros(()))  # PyTorch writes a warning if it finds no unused parameter
        self.outcome: Outcome | None = None
        self._step_loss = step_loss

    def forward(self, x: Tensor, y: Any, progress: float) -> Tensor:
        """The loss."""
        self.outcome = self._step_loss(x, y, progress)
        return self.outcome.loss


def _own_slice(count: int) -> BatchSlice:
    counts = distributed.counts(count)
    if min(counts) < 2:  # an SPM takes one image's statistics from those it has seen, and would wait for the others
        raise SanpError(f"a batch gives the processes {counts} images: make batch_size at least {2 * len(counts)}")
    start = sum(counts[: distributed.rank()])
    return BatchSlice(start, start + count, sum(counts))


def _averaged(outcome: "Outcome", loss: Tensor, own: BatchSlice) -> "Outcome":
    """What to show as means over the whole batch; the loss scaled so that the mean of gradients is the batch's."""
    ours = (loss.item(), outcome.shown, outcome.correct, outcome.kept)
    means = distributed.weighted_mean([value or 0.0 for value in ours], own.share)
    value, shown, correct, kept = (None if mine is None else mean for mine, mean in zip(ours, means, strict=True))
    outcome.loss = loss * (own.share * distributed.world())
    outcome.value, outcome.shown, outcome.correct, outcome.kept = value, shown, correct, kept
    return outcome
