"""The batches that a run trains on, as its recipe asks: their size, changes of the images, steps in an epoch."""

import math
from collections.abc import Callable

from sanp import data
from sanp.experiments.recipe import Recipe

Tell = Callable[[str], None]
"""Is called with a line for the user."""


def training_batches(recipe: Recipe, dataset: data.Dataset, tell: Tell) -> data.Batches:
    """The shuffled batches of the training images; ``tell`` is called with what the user should know of them."""
    batch = min(recipe.batch_size, len(dataset.train))
    return data.Batches(
        enough(dataset, batch, recipe.least_steps, tell),
        batch,
        mean=dataset.mean,
        std=dataset.std,
        augment=augmentation(dataset, recipe.augment),
        shuffle=True,
        seed=recipe.seed,
        drop_last=True,
    )


def enough(dataset: data.Dataset, batch: int, least: int, tell: Tell) -> data.Examples:
    """The training images, for a folder as many times that an epoch has ``least`` steps of ``batch`` images.

    The schedules of all stages count epochs; with 3 steps in each, none of them would learn anything.
    """
    count = len(dataset.train)
    times = math.ceil(least * batch / count) if dataset.name.startswith(data.IMAGEFOLDER) else 1
    if times <= 1:
        return dataset.train
    tell(
        f"{count} training images are few: an epoch goes through them {times} times, in {times * count // batch} steps "
        f"of {batch} (--least-steps)"
    )
    return data.Repeated(dataset.train, times)


def augmentation(dataset: data.Dataset, kind: str) -> data.Augment:
    """The changes of training images that a recipe asks for."""
    kinds = {
        "short": dataset.augment,
        "cutout": dataset.augment.with_cutout(dataset.image_size),
        "standard": dataset.augment.standard(dataset.image_size),
        "none": data.Augment(),
    }
    return kinds[kind]
