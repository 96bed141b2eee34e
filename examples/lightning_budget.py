"""PyTorch Lightning: a module as one would write it, and the callback of sanp that meets the budget.

Run it with ``python examples/lightning_budget.py``; it needs ``pip install 'sanp[lightning]'``.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import sanp
from sanp.lightning import BudgetCallback


class Classifier(L.LightningModule):
    """A module as one would write it; its loss knows nothing of gates."""

    def __init__(self, net: sanp.GatedNetwork, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameter_groups(lr=3e-3, steps=self.steps))


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
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False,
        callbacks=[BudgetCallback(gated, budget, images=train.tensors[0])],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    loader = DataLoader(train, batch_size=64, shuffle=True)
    trainer.fit(Classifier(gated, epochs * len(loader)), loader)
    report = sanp.evaluate(gated, [(test.tensors[0], test.tensors[1])])
    return {"accuracy": report.accuracy, "kept": report.kept}


if __name__ == "__main__":
    print({name: round(value, 3) for name, value in main().items()})
