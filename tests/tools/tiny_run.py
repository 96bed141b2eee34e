"""A run that takes a second: a small network on made-up images, through the real recipe, run folder and stages."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sanp import data
from sanp.backbones import BACKBONES
from sanp.core.errors import Stopped
from sanp.experiments.recipe import Recipe, make_recipe
from sanp.experiments.run import train
from sanp.training.stage import Progress
from tests.conftest import SmallNet, coloured_squares


def squares() -> data.Dataset:
    """Coloured squares as a data set of 8x8 images."""

    def split(count: int, seed: int) -> data.Split:
        images, labels = coloured_squares(count, seed=seed)
        return data.Split((images * 32 + 96).clamp(0, 255).to(torch.uint8), labels)

    return data.Dataset(
        name="squares",
        train=split(256, 0),
        test=split(128, 1),
        classes=("top left", "top right", "bottom left", "bottom right"),
        mean=(0.4, 0.4, 0.4),
        std=(0.1, 0.1, 0.1),
        augment=data.Augment(flip=False, translate=1),
    )


class Tiny(SmallNet):
    """Eight channels, and dropout, whose random numbers must be resumed too."""

    def __init__(self, num_classes: int = 4) -> None:
        super().__init__(num_classes, width=8)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        features = torch.nn.functional.dropout(self.features(x).mean((2, 3)), 0.1, self.training)
        y: Tensor = self.classifier(features)
        return y


def load_squares(root: Path, **_: object) -> data.Dataset:
    """The squares, as the table of data sets wants a loader."""
    return squares()


def install(patch: pytest.MonkeyPatch | None = None) -> None:
    """Makes the backbone ``tiny`` known, and the data set ``digits`` the squares, until the patch is undone."""
    if patch is not None:
        patch.setitem(BACKBONES, "tiny", Tiny)
        patch.setitem(data.DATASETS, "digits", load_squares)
    BACKBONES["tiny"] = Tiny
    data.DATASETS["digits"] = load_squares


def recipe(**settings: object) -> Recipe:
    """Three stages of a few steps each."""
    fit = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 3, "precision": "fp32", "norm_batches": 2}
    return make_recipe({"backbone": "tiny", "batch_size": 32, "threads": 1, "budget": "50%", "fit": fit, **settings})


def stopped_in_joint_stage(folder: Path) -> Path:
    """A run that SIGTERM stopped after the first step of its joint stage; gives the file with its state."""

    def stop(progress: Progress) -> None:
        if progress.stage == "joint":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped"):
        train(recipe(), folder, watch=stop)
    return folder / "state" / "now.safetensors"


def write_row(recipes: Path, method: str = "sanp") -> None:
    """The recipe of a row of table 1, one epoch of each stage."""
    (recipes / "table1").mkdir(parents=True, exist_ok=True)
    (recipes / "table1" / f"tiny-{method}.toml").write_text(
        f'backbone = "tiny"\nbatch_size = 32\nthreads = 1\nbudget = "60%"\nmethod = "{method}"\n'
        "[fit]\npretrain_epochs = 1\njoint_epochs = 1\n"
    )
