"""Hugging Face's Trainer: a ResNet of transformers, gated, with the cost of its gates in ``compute_loss``.

Run it with ``python examples/transformers_trainer.py``; it needs ``pip install transformers accelerate``.
"""

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import sanp


class GatedTrainer(Trainer):
    """A Trainer whose loss has the gates' cost in it."""

    def __init__(self, *args: Any, budget: sanp.Budget, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget = budget

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        with sanp.record(model) as gates:
            outputs = model(**inputs)
        loss = outputs["loss"]
        if model.training:
            loss = loss + self.budget.loss(gates)
        return (loss, outputs) if return_outputs else loss


class Quarters(Dataset[dict[str, Tensor]]):
    """Images with one bright quarter; the label says which."""

    def __init__(self, count: int) -> None:
        self.labels = torch.randint(4, (count,))
        self.images = 0.3 * torch.randn(count, 3, 32, 32)
        for image, label in zip(self.images, self.labels.tolist(), strict=True):
            top, left = 16 * (label // 2), 16 * (label % 2)
            image[:, top : top + 16, left : left + 16] += 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def main(epochs: int = 6, budget: str = "60%") -> dict[str, float]:
    """Trains, meets the budget, and gives the accuracy and the share of the FLOPs that is left."""
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=4, num_channels=3
    )
    gated = sanp.gate(ResNetForImageClassification(config), {"pixel_values": torch.randn(1, 3, 32, 32)})
    train, test = Quarters(512), Quarters(256)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=epochs, per_device_train_batch_size=32, use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", remove_unused_columns=False,
        )  # fmt: skip
        steps = epochs * len(train) // 32
        trainer = GatedTrainer(
            model=gated,
            args=arguments,
            train_dataset=train,
            budget=sanp.Budget(gated, budget, steps=steps),
            optimizers=(torch.optim.AdamW(gated.parameter_groups(lr=3e-3, steps=steps)), None),
        )
        trainer.train()
    gated.set_budget(budget, train.images)
    report = sanp.evaluate(gated, [(test.images, test.labels)])
    return {"accuracy": report.accuracy, "kept": report.kept}


if __name__ == "__main__":
    print({name: round(value, 3) for name, value in main().items()})
