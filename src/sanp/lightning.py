"""PyTorch Lightning: a callback that adds the cost of the gates to whatever loss a module has (``sanp[lightning]``)."""

from contextlib import ExitStack
from importlib import import_module
from typing import Any

from torch import Tensor

from sanp.core.checks import check_kind
from sanp.core.errors import SanpError
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import record
from sanp.training.budget import Budget

try:
    _Callback: Any = import_module("lightning.pytorch").Callback
except ImportError as error:
    raise SanpError("sanp.lightning needs PyTorch Lightning: pip install 'sanp[lightning]'") from error


class BudgetCallback(_Callback):  # type: ignore[misc]
    """Listens to the gates of each step and adds their cost to the gradients of the module's own loss.

    ``images`` are some of the training images, on which the thresholds meet the budget when training ends; without
    them, call ``gated.set_budget`` afterwards.
    """

    def __init__(self, gated: GatedNetwork, budget: object, *, images: Any = None) -> None:
        super().__init__()
        check_kind("gated", gated, GatedNetwork, "what sanp.gate returned")
        gated.kept_for(budget)  # one that cannot be met is an error now
        self.gated, self.budget, self.images = gated, budget, images
        self.cost: Budget | None = None
        self._state: dict[str, Any] = {}
        self._listening = ExitStack()
        self._gates: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The number of steps to come says how fast the target falls."""
        steps = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
        self.cost = Budget(self.gated, self.budget, steps=int(steps) if 0 < steps < float("inf") else None)
        if self._state:
            self.cost.restore(self._state)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begins to listen."""
        self._gates = self._listening.enter_context(record(self.gated))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """The gradients of the cost; Lightning's own backward follows and goes through the same SPMs."""
        assert self.cost is not None
        cost = self.cost.loss(self._gates) / trainer.accumulate_grad_batches
        cost.backward(retain_graph=True)

    def on_train_batch_end(self, *args: Any) -> None:
        """Stops listening."""
        self._listening.close()

    def on_exception(self, *args: Any) -> None:
        """Stops listening."""
        self._listening.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Meets the budget."""
        if self.images is not None:
            self.gated.set_budget(self.budget, self.images)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning's checkpoint keeps."""
        return dict(self.cost.state()) if self.cost is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was taken."""
        self._state = state_dict
