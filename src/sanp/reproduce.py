"""The paper's tables, made again: a recipe a row, a results line a finished row, tables from the lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from sanp.compare import Job, carry_out, dense_recipe
from sanp.errors import SanpError, unknown_name
from sanp.methods import METHODS
from sanp.recipe import Recipe, make_recipe, read_recipe
from sanp.results import append, fill, read, result_line
from sanp.stages import Progress
from sanp.table import NAMES

TABLES = {
    "table1": "Table 1: CIFAR-10",
    "table2": "Table 2: CIFAR-100",
    "table3": "Table 3: the ablations, a third of ResNet-18 pruned, CIFAR-10",
    "methods": "Every method on M-CifarNet, CIFAR-10",
}
# PAPER tables 1 to 3: error in %, FLOPs in millions, pruned in %.
PAPER: dict[str, tuple[float, float, float | None]] = {
    "cifar10-m_cifarnet-dense": (8.63, 174.3, None),
    "cifar10-vgg19-dense": (6.34, 398.5, None),
    "cifar10-resnet18-dense": (5.40, 501, None),
    "cifar100-vgg19-dense": (26.74, 398.5, None),
    "cifar100-resnet18-dense": (24.95, 501, None),
    "table1/m_cifarnet-fbs": (9.41, 44.3, 74.6),
    "table1/m_cifarnet-sanp": (9.41, 39.3, 77.5),
    "table1/vgg19-ns": (6.20, 195.5, 51.0),
    "table1/vgg19-fcp": (6.24, 143.9, 63.9),
    "table1/vgg19-sanp": (6.18, 133.9, 66.4),
    "table1/resnet18-cg": (5.62, 172, 65.6),
    "table1/resnet18-sanp": (5.64, 163, 67.5),
    "table2/vgg19-ns": (26.52, 250.5, 37.1),
    "table2/vgg19-fcp": (26.45, 196.3, 50.7),
    "table2/vgg19-sanp": (26.47, 170.6, 57.2),
    "table2/resnet18-cg": (25.24, 200, 59.9),
    "table2/resnet18-sanp": (25.20, 189, 62.3),
    "table3/resnet18-fixed_k": (5.62, 331, 33.9),
    "table3/resnet18-static": (5.48, 337, 32.8),
    "table3/resnet18-sanp": (5.41, 333, 33.5),
}
HEADING = (
    "| Backbone | Model | L-a | S-a | Error (%) | FLOPs (M) | Pruned (%) | by the paper's count | Epochs "
    "| Paper: error | FLOPs | pruned |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """One row: where its recipe stands, and the recipe as it is to be run."""

    name: str
    recipe: Recipe

    @property
    def dense_name(self) -> str:
        """What the results call the dense network that it starts from."""
        return f"{self.recipe.data}-{self.recipe.backbone}-dense"


@dataclass(frozen=True)
class Scope:
    """How much of a row to run: all of it, or a short form that shows that the path works."""

    epochs: float = 1.0
    """factor of all epochs"""
    images: int | None = None
    """training images; all if none"""

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe, shortened."""
        if not self.epochs > 0:
            raise SanpError(f"epochs-scale {self.epochs}: give a factor above 0")
        fit = recipe.fit
        scaled = {
            name: max(1, round(self.epochs * getattr(fit, name)))
            for name in ("pretrain_epochs", "warmup_epochs", "joint_epochs")
        }
        return replace(recipe, limit=self.images or recipe.limit, fit=replace(fit, **scaled))


def select(
    recipes: Path,
    tables: Iterable[str],
    *,
    backbone: str | None = None,
    rows: Iterable[str] = (),
    scope: Scope | None = None,
) -> list[Row]:
    """The rows of some tables, of one backbone or of some names only."""
    wanted = set(rows)
    found: list[Row] = []
    for table in tables:
        if table not in TABLES:
            raise unknown_name("table", table, TABLES)
        for path in sorted((recipes / table).glob("*.toml")):
            recipe = (scope or Scope()).of(make_recipe(read_recipe(path), str(path)))
            if backbone in (None, recipe.backbone) and (not wanted or path.stem in wanted):
                found.append(Row(f"{table}/{path.stem}", recipe))
    if not found:
        raise SanpError(f"no such row in {recipes}: look at the files there for the names, or leave --rows out")
    return found


def reproduce(
    rows: Iterable[Row],
    runs: Path,
    results: Path,
    *,
    tell: Callable[[str], None] = lambda line: None,
    watch: Callable[[Progress], None] | None = None,
) -> None:
    """Runs what has no results line yet, from where it stands; each finished row appends one line."""
    for row in rows:
        dense = dense_recipe(row.recipe)
        base = Job(dense, runs / _folder(row.dense_name, dense))
        _run(row.dense_name, base, results / "dense.jsonl", tell, watch)
        recipe = replace(row.recipe, pretrained=str(base.folder / "model.safetensors"))
        job = Job(recipe, runs / _folder(row.name, recipe))
        _run(row.name, job, results / f"{row.name.partition('/')[0]}.jsonl", tell, watch)


def _run(name: str, job: Job, results: Path, tell: Callable[[str], None], watch: Any) -> None:
    if any(line["name"] == name and _same_work(line, job.recipe) for line in read(results)):
        tell(f"{name}: in {results.name} already")
        return
    seconds = 0.0
    if not job.finished:
        tell(f"{name}: begun")
        began = monotonic()
        carry_out(job, watch)
        seconds = monotonic() - began
    line = result_line(name, job.folder, seconds)
    append(results, line)
    tell(f"{name}: error {line['error']:.2%}, {line['kept']:.2%} of the dense FLOPs")


def _same_work(line: dict[str, Any], recipe: Recipe) -> bool:
    """The line is of as many epochs and images with the same seed."""
    fit = recipe.fit
    epochs = [fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs]
    return bool(line["epochs"] == epochs and line["images"] == recipe.limit and line["seed"] == recipe.seed)


def _folder(name: str, recipe: Recipe) -> str:
    """A run folder's name that tells short runs from whole ones."""
    fit = recipe.fit
    short = f"-{recipe.limit}" if recipe.limit else ""
    return f"{name.replace('/', '-')}-{fit.pretrain_epochs}.{fit.warmup_epochs}.{fit.joint_epochs}{short}"


def results_page(results: Path) -> str:
    """docs/results.md's tables from the lines, ours beside the paper's."""
    dense = {line["name"]: line for line in read(results / "dense.jsonl")}
    parts = []
    for table, title in TABLES.items():
        lines = list(read(results / f"{table}.jsonl"))
        if not lines:
            continue
        shown: list[dict[str, Any]] = []
        for line in lines:
            base = dense.get(f"{line['data']}-{line['backbone']}-dense")
            if base is not None and base not in shown:
                shown.append(base)
            shown.append(line)
        parts.append(f"### {title}\n\n{HEADING}\n" + "\n".join(map(_table_row, shown)))
    return "\n\n".join(parts)


def _table_row(line: dict[str, Any]) -> str:
    method = METHODS[line["method"]]
    error, flops, pruned = PAPER.get(line["name"], (None, None, None))
    ticks = ("✓" if method.layer_adaptive else "", "✓" if method.sample_adaptive else "")
    dense = line["method"] == "dense"
    cells = [
        NAMES[line["backbone"]],
        NAMES[line["method"]],
        *ticks,
        f"{100 * line['error']:.2f}",
        f"{line['flops'] / 1e6:.1f}",
        "" if dense else f"{100 * line['pruned']:.1f}",
        "" if dense else f"{100 * (1 - line['paper_flops'] / line['dense_flops']):.1f}",
        _length(line),
        *("" if number is None else f"{number:g}" for number in (error, flops, pruned)),
    ]
    return "| " + " | ".join(cells) + " |"


def _length(line: dict[str, Any]) -> str:
    pretrain, warmup, joint = line["epochs"]
    epochs = str(pretrain) if line["method"] == "dense" else f"{pretrain} + {warmup + joint}"
    return epochs if line["images"] is None else f"{epochs}, short: {line['images']} images"


def write_page(results: Path, page: Path) -> None:
    """Fills the results page from the lines."""
    fill(page, "tables", results_page(results))
