"""PyTorch Lightning (``sanp[lightning]``): a callback that adds the cost loss to the loss of any LightningModule."""

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
    """Records the gates of each step and adds the gradients of the cost loss to those of the module's own loss.

    ``gated`` is the gated network that the module trains. ``budget`` is a share, a count of multiply-adds or, with a
    latency table, a time. ``images`` are some of the training images, on which the thresholds are calibrated to the
    budget when training ends; without them, call ``gated.set_budget`` afterwards.
    """

    def __init__(self, gated: GatedNetwork, budget: object, *, images: Any = None) -> None:
        super().__init__()
        check_kind("gated", gated, GatedNetwork, "what sanp.gate returned")
        gated.kept_for(budget)  # raises an error now if the budget cannot be met
        self.gated, self.budget, self.images = gated, budget, images
        self.cost: Budget | None = None
        self._state: dict[str, Any] = {}
        self._listening = ExitStack()
        self._gates: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Makes the cost loss; how fast its target falls depends on the number of steps to come."""
        steps = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
        self.cost = Budget(self.gated, self.budget, steps=int(steps) if 0 < steps < float("inf") else None)
        if self._state:
            self.cost.restore(self._state)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begins to record gates."""
        self._gates = self._listening.enter_context(record(self.gated))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Computes the gradients of the cost loss; Lightning then adds those of the module's loss."""
        assert self.cost is not None
        cost = self.cost.loss(self._gates) / trainer.accumulate_grad_batches
        cost.backward(retain_graph=True)

    def on_train_batch_end(self, *args: Any) -> None:
        """Ends recording gates."""
        self._listening.close()

    def on_exception(self, *args: Any) -> None:
        """Ends recording gates."""
        self._listening.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Calibrates the thresholds to the budget, if images were given."""
        if self.images is not None:
            self.gated.set_budget(self.budget, self.images)

    def state_dict(self) -> dict[str, Any]:
        """The state that Lightning keeps in its checkpoints."""
        return dict(self.cost.state()) if self.cost is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state that :meth:`state_dict` returned."""
        self._state = state_dict
