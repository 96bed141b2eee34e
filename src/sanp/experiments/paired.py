"""Finished runs on the same images: how many each of two networks alone has right (McNemar's test)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.experiments.documents import table_line
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import evaluation_batches, load_data, load_run, read_run


@dataclass(frozen=True, kw_only=True)
class PairedRuns:
    """Two networks on the same images; images that both have right, or both wrong, tell nothing."""

    images: int
    first_alone: int
    """images that the first network has right and the second one wrong"""
    second_alone: int
    """images that the second network has right and the first one wrong"""

    @property
    def deviations(self) -> float:
        """The difference in standard deviations of such a count: within -2 and 2 in 19 of 20 cases if equal."""
        return (self.first_alone - self.second_alone) / math.sqrt(max(1, self.first_alone + self.second_alone))

    @property
    def chance(self) -> float:
        """How likely a difference of at least this size is if both are equally good: the exact test, both sides."""
        every, fewer = self.first_alone + self.second_alone, min(self.first_alone, self.second_alone)
        tail = sum(math.comb(every, count) for count in range(fewer + 1))
        return min(1.0, 2 * tail / (1 << every))

    def as_dict(self) -> dict[str, Any]:
        """The numbers, for a results line."""
        return {**asdict(self), "deviations": round(self.deviations, 2), "chance": float(f"{self.chance:.3g}")}


def paired(first: Tensor, second: Tensor) -> PairedRuns:
    """Compares two networks; each argument says for every image whether that network has it right (N,)."""
    one, other = int((first & ~second).sum()), int((~first & second).sum())
    return PairedRuns(images=len(first), first_alone=one, second_alone=other)


def compare_paired(folders: Sequence[Path], device: torch.device = CPU) -> list[PairedRuns]:
    """The first run against each of the others, on the images that the runs were evaluated on.

    ``folders`` are run folders; all must have the same data set and report on the same images of it. The networks run
    on ``device``.
    """
    if len(folders) < 2:
        raise SanpError("a paired test takes two runs or more: give the folder of the first, then those of the others")
    recipes = [read_run(folder) for folder in folders]
    for folder, recipe in zip(folders, recipes, strict=True):
        if _images_of(recipe) != _images_of(recipes[0]):
            raise SanpError(
                f"{folder} was evaluated on other images than {folders[0]}: give runs of the same data, image_size, "
                "report_on and, if they report on held-out images, validate"
            )
    first, *others = (right(folder, device) for folder in folders)
    return [paired(first, other) for other in others]


def _images_of(recipe: Recipe) -> tuple[object, ...]:
    held_out = recipe.validate if recipe.report_on == "held-out" else None
    return recipe.data, recipe.image_size, recipe.report_on, held_out


@torch.no_grad()
def right(folder: Path, device: torch.device = CPU) -> Tensor:
    """For every image of the final report whether the run's network has it right (N,)."""
    dataset = load_data(read_run(folder))
    network = load_run(folder, dataset).eval().to(device)
    return torch.cat([network(x.to(device)).argmax(1).cpu() == y for x, y in evaluation_batches(dataset)])


def paired_table(folders: Sequence[Path], pairs: Sequence[PairedRuns]) -> str:
    """A Markdown table of the first run in ``folders`` against each of the others."""
    rows = [
        table_line(
            [f"{folders[0].name} against", "images", "right alone", "other right alone", "deviations", "chance"]
        ),
        "|---|---|---|---|---|---|",
    ]
    for folder, pair in zip(folders[1:], pairs, strict=True):
        counts = (str(count) for count in (pair.images, pair.first_alone, pair.second_alone))
        rows.append(table_line([folder.name, *counts, f"{pair.deviations:+.2f}", f"{pair.chance:.2g}"]))
    return "\n".join(rows) + "\n"
