"""The rows of the paper's tables: their recipes, how much of each is run, for which seeds, and in which folders."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sanp.core.devices import chosen_device
from sanp.core.errors import SanpError, unknown_name
from sanp.experiments.compare import dense_recipe
from sanp.experiments.paper.contents import TABLES
from sanp.experiments.paper.stale import changed
from sanp.experiments.recipe import Recipe, make_recipe, read_recipe
from sanp.experiments.run_folder import CONFIG, folder_name, read_run
from sanp.experiments.seeds import check_seeds


@dataclass(frozen=True)
class RecipeRow:
    """One row of a table, for one seed: its name, and the recipe to run."""

    name: str
    """table and file name of its recipe, such as ``table1/vgg19-ns``"""
    recipe: Recipe
    dense_seed: int = 0
    """seed of the dense network, which is the same for all seeds of the row"""

    @property
    def dense_name(self) -> str:
        """The name in the results of the dense network that the row starts from."""
        return f"{self.recipe.data}-{self.recipe.backbone}-dense"

    @property
    def dense(self) -> Recipe | None:
        """The recipe of the dense network that the row starts from; None if its recipe names a network itself."""
        return None if self.recipe.pretrained is not None else dense_recipe(replace(self.recipe, seed=self.dense_seed))


@dataclass(frozen=True)
class Scope:
    """How much of a row to run, all of it or less for a quick test, and where."""

    epochs: float = 1.0
    """factor on all numbers of epochs"""
    images: int | None = None
    """number of training images; None: all"""
    device: str | None = None
    """auto, cpu, cuda or mps; None: what the recipe says"""

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe with the epochs, images and device of this scope."""
        if not 0 < self.epochs < math.inf:
            raise SanpError(f"epochs-scale {self.epochs}: give a factor above 0")
        if self.images is not None and self.images < 1:
            raise SanpError(f"limit {self.images}: give at least one image, or leave it out for all")
        if self.device is not None:
            chosen_device(self.device)
        fit = recipe.fit
        scaled = {
            name: max(1, round(self.epochs * getattr(fit, name)))
            for name in ("pretrain_epochs", "warmup_epochs", "joint_epochs")
        }
        place: Any = self.device or recipe.device
        return replace(recipe, limit=self.images or recipe.limit, device=place, fit=replace(fit, **scaled))


def select(
    recipes: Path,
    tables: Iterable[str],
    *,
    backbone: str | None = None,
    rows: Iterable[str] = (),
    scope: Scope | None = None,
    seeds: int = 1,
    unreadable: list[str] | None = None,
) -> list[RecipeRow]:
    """The rows of the given tables, whose recipes are in the folder ``recipes``.

    ``backbone`` selects the rows of one backbone, ``rows`` those with these file names. ``scope`` shortens them. Each
    is there for ``seeds`` seeds, from that of its recipe on; the dense network is the same for all of them.

    A recipe that cannot be read is an error, or, if ``unreadable`` is given, a text with name and reason in it.
    """
    check_seeds(seeds)
    wanted, known = set(rows), {path.stem for table in TABLES for path in (recipes / table).glob("*.toml")}
    found: list[RecipeRow] = []
    for name in sorted(wanted - known):
        raise unknown_name("row", name, known)
    for table in tables:
        if table not in TABLES:
            raise unknown_name("table", table, TABLES)
        for path in sorted((recipes / table).glob("*.toml")):
            if wanted and path.stem not in wanted:
                continue
            try:
                whole = make_recipe(read_recipe(path), str(path))
            except SanpError as error:
                if unreadable is None:
                    raise
                unreadable.append(f"{table}/{path.stem}: {error}")
                continue
            recipe = (scope or Scope()).of(whole)
            if backbone in (None, recipe.backbone):
                each = (replace(recipe, seed=recipe.seed + more) for more in range(seeds))
                found += [RecipeRow(f"{table}/{path.stem}", one, recipe.seed) for one in each]
    if not found and not unreadable:
        raise SanpError(f"no such row in {recipes}: look at the files there, or leave --backbone or --rows out")
    return found


def row_folder(runs: Path, name: str, recipe: Recipe) -> Path:
    """The run folder of a row in ``runs``; its name tells short runs from whole ones, and seeds apart.

    Where a run with other settings has the name already, a number is added.
    """
    fit = recipe.fit
    short = f"-{recipe.limit}" if recipe.limit else ""
    seed = f"-seed{recipe.seed}" if recipe.seed else ""
    epochs = f"{fit.pretrain_epochs}.{fit.warmup_epochs}.{fit.joint_epochs}"
    first = folder = runs / f"{folder_name(name)}-{epochs}{short}{seed}"
    number = 1
    while (folder / CONFIG).is_file() and changed(read_run(folder).as_dict(), recipe):
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def recipes_now(recipes: Path) -> dict[str, list[Recipe]]:
    """The recipe of every row by its name, and those of the dense networks, of which several may have one name.

    It is empty without such a folder, and without recipes that cannot be read.
    """
    if not any((recipes / table).is_dir() for table in TABLES):
        return {}
    found: dict[str, list[Recipe]] = {}
    for row in select(recipes, TABLES, unreadable=[]):
        found[row.name] = [row.recipe]
        dense = found.setdefault(row.dense_name, [])
        if row.dense is not None and row.dense not in dense:
            dense.append(row.dense)
    return found


def same_work(line: dict[str, Any], recipe: Recipe) -> bool:
    """Whether a results line is of a run with the epochs, images and seed of ``recipe``."""
    fit = recipe.fit
    epochs = [fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs]
    return bool(line["epochs"] == epochs and line["images"] == recipe.limit and line["seed"] == recipe.seed)
