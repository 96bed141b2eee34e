"""PyTorch Lightning: a callback that adds the cost of the gates to whatever loss a module has.

Run it with ``python examples/lightning_budget.py``; it needs ``pip install lightning``.
"""

from contextlib import ExitStack
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import sanp


class BudgetCallback(L.Callback):
    """Listens to the gates of each step and adds their cost to the gradients of the module's own loss."""

    def __init__(self, gated: sanp.GatedNetwork, budget: object) -> None:
        self.gated, self.budget = gated, budget
        self.cost: sanp.Budget | None = None
        self._recording = ExitStack()
        self._gates: Any = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.cost = sanp.Budget(self.gated, self.budget, steps=int(trainer.estimated_stepping_batches))

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._gates = self._recording.enter_context(sanp.record(self.gated))

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        assert self.cost is not None
        # Lightning's own backward follows and goes through the same SPMs.
        self.cost.loss(self._gates).backward(retain_graph=True)

    def on_train_batch_end(self, *args: Any) -> None:
        self._recording.close()


class Classifier(L.LightningModule):
    """A module as one would write it: nothing in it knows of gates."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def quarters(count: int) -> TensorDataset:
    """Images with one bright quarter; the label says which."""
    labels = torch.randint(4, (count,))
    images = 0.3 * torch.randn(count, 3, 16, 16)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = 8 * (label // 2), 8 * (label % 2)
        image[:, top : top + 8, left : left + 8] += 1
    return TensorDataset(images, labels)


def main(epochs: int = 6, budget: str = "50%") -> dict[str, float]:
    """Trains, meets the budget, and gives the accuracy and the share of the FLOPs that is left."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip
    gated = sanp.gate(net, torch.randn(1, 3, 16, 16))
    train, test = quarters(512), quarters(256)
    trainer = L.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, callbacks=[BudgetCallback(gated, budget)],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Classifier(gated), DataLoader(train, batch_size=64, shuffle=True))
    gated.set_budget(budget, train.tensors[0])
    report = sanp.evaluate(gated, [(test.tensors[0], test.tensors[1])])
    return {"accuracy": report.accuracy, "kept": report.kept}


if __name__ == "__main__":
    print({name: round(value, 3) for name, value in main().items()})
