"""The history of a training: the means of every epoch, collected step by step."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sanp.training.stage import Progress


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch of training."""

    stage: str
    """pretrain, warm-up, joint, or another method's stage"""
    epoch: int
    """its number in the stage, from 1"""
    loss: float
    """the task's loss with distillation and without penalties, as a mean over the steps"""
    accuracy: float | None
    """share of the training images that were classified correctly; None if the task has no classes"""
    kept: float | None
    """share of the dense FLOPs that is computed, at the end of the epoch; None for an ungated network"""
    target: float | None
    """what ``kept`` should be"""
    cost_weight: float | None
    """λ at the end of the epoch"""


@dataclass(repr=False)
class History:
    """The epochs of a training, in their order; it can be iterated, and printed as a table."""

    epochs: list[Epoch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._losses: list[float] = []
        self._right: list[float] = []

    def step(self, progress: Progress) -> None:
        """Adds the step that ``progress`` tells of; the last one of an epoch adds the epoch."""
        self._losses.append(progress.loss)
        if progress.accuracy is not None:
            self._right.append(progress.accuracy)
        if not progress.epoch_over:
            return
        losses, right = self._losses, self._right
        self._losses, self._right = [], []
        self.epochs.append(
            Epoch(
                stage=progress.stage,
                epoch=progress.epoch,
                loss=sum(losses) / len(losses),
                accuracy=sum(right) / len(right) if right else None,
                kept=progress.kept,
                target=progress.target,
                cost_weight=progress.cost_weight,
            )
        )

    def as_dicts(self) -> list[dict[str, Any]]:
        """A dict for each epoch, for JSON or a data frame."""
        return [asdict(epoch) for epoch in self.epochs]

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __getitem__(self, index: int) -> Epoch:
        return self.epochs[index]

    def __repr__(self) -> str:
        head = f"{'stage':<10} {'epoch':>5} {'loss':>8} {'accuracy':>9} {'cost':>7} {'budget':>7} {'λ':>7}"
        rows = [
            f"{each.stage:<10} {each.epoch:>5} {each.loss:>8.3f} {share_text(each.accuracy):>9} "
            f"{share_text(each.kept):>7} {share_text(each.target):>7} "
            f"{'' if each.cost_weight is None else f'{each.cost_weight:+.2f}':>7}".rstrip()
            for each in self.epochs
        ]
        return "\n".join([head, *rows])


def share_text(share: float | None) -> str:
    """A share as text; nothing for None."""
    return "" if share is None else f"{share:.1%}"
