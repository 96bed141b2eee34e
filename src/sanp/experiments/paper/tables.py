"""Markdown tables of the reproduced results with the numbers of the paper beside them, made from results lines."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sanp.core.checks import is_kind
from sanp.experiments.documents import markdown_text, table_line
from sanp.experiments.paper.contents import TABLES
from sanp.experiments.paper.deciding import deciding_flops
from sanp.experiments.paper.rows import recipes_now
from sanp.experiments.paper.stale import changed, flat_settings
from sanp.experiments.recipe import PRESETS
from sanp.experiments.results import Line, read_run_lines
from sanp.experiments.seeds import mean_and_deviation
from sanp.experiments.table import NAMES, display_name
from sanp.methods import METHODS

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
    "| Backbone | Model | L-a | S-a | Error (%) | Seeds | Trials | FLOPs (M) | Pruned (%) | by the paper's count "
    "| Deciding (%) | Epochs | Paper: error | FLOPs | pruned |\n" + 15 * "|---" + "|"
)
SHORT_HEADING = (
    "| Backbone | Model | Error (%) | Seeds | FLOPs (M) | Pruned (%) | Deciding (%) | Epochs | Paper: error | FLOPs "
    "| pruned |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)
PAPER_EPOCHS = PRESETS["paper"]["fit"]["joint_epochs"]
"""joint epochs in the preset ``paper``"""
STALE = "†"
"""marks a row whose settings are not those of its recipe any more"""


@dataclass(frozen=True)
class TableEntry:
    """What a row of a table is made of: the lines of all its seeds, and why they are stale, if they are."""

    lines: tuple[Line, ...]
    stale: tuple[str, ...] = ()

    @property
    def first(self) -> Line:
        """The line of the first seed."""
        return self.lines[0]

    def mean(self, key: str) -> float:
        """The mean of a number over the seeds."""
        return fmean(line[key] for line in self.lines)


def results_page(results: Path, recipes: Path | None = None) -> str:
    """The tables of docs/results.md, from the results files in the folder ``results``.

    Rows that differ from the recipes in the folder ``recipes`` are marked, with the settings that differ below.
    """
    dense, parts = list(read_run_lines(results / "dense.jsonl")), []
    for table, title in TABLES.items():
        lines = [line for line in read_run_lines(results / f"{table}.jsonl") if on_all_images(line)]
        if lines:
            rows = with_dense(entries(lines, recipes), entries(dense, recipes))
            parts.append(f"### {title}\n\n{HEADING}\n" + "\n".join(map(_row, rows)) + _reasons(rows))
    return "\n\n".join(parts) or "No row is finished yet: `sanp reproduce table1` runs those of table 1."


def readme_table(results: Path, recipes: Path | None = None) -> str:
    """The table of the README; the arguments are those of :func:`results_page`.

    It has the CIFAR-10 rows with default settings, of whole runs.
    """
    lines = [line for table in ("table1", "methods", "table3") for line in read_run_lines(results / f"{table}.jsonl")]
    chosen = entries(
        (line for line in lines if line["data"] == "cifar10" and not variant(line) and on_all_images(line)), recipes
    )
    if not chosen:
        return "No run is finished yet: `sanp reproduce table1` adds a row here for each that is."
    order = {name: place for place, name in enumerate(NAMES)}
    grouped = sorted(chosen, key=lambda entry: order.get(entry.first["backbone"], len(order)))
    rows = with_dense(grouped, entries(read_run_lines(results / "dense.jsonl"), recipes))
    return SHORT_HEADING + "\n" + "\n".join(map(_short_row, rows)) + _stale_note(rows)


def entries(lines: Iterable[Line], recipes: Path | None = None) -> list[TableEntry]:
    """The lines as entries: those of one row that differ by the seed alone make one entry.

    A row that was run again with the same epochs and images shows its last run, unless only an earlier one has the
    settings of its recipe in the folder ``recipes``. Without such a folder nothing is taken to be stale.
    """
    now = {} if recipes is None else recipes_now(recipes)
    runs: dict[str, dict[int, dict[bool, tuple[Line, tuple[str, ...]]]]] = {}
    for line in lines:
        whys = [changed(line["config"], recipe) for recipe in now.get(line["name"], ())]
        fewest: list[str] = min(whys, key=len) if whys else []
        why = tuple(fewest)
        run = json.dumps([line["name"], line["epochs"], line["images"]])
        runs.setdefault(run, {}).setdefault(line["seed"], {})[not why] = (line, why)
    found: list[TableEntry] = []
    for seeds in runs.values():
        fresh = [by_kind[True] for by_kind in seeds.values() if True in by_kind]
        chosen = sorted(fresh or [by_kind[False] for by_kind in seeds.values()], key=lambda each: each[0]["seed"])
        found.append(TableEntry(tuple(line for line, _ in chosen), chosen[0][1]))
    return found


def on_all_images(line: Line) -> bool:
    """The run trained on all images; a short one shows only that everything works."""
    return line["images"] is None


def latest(lines: Iterable[Line]) -> list[Line]:
    """The last line of each row; one of a short run only if there is none of a whole run."""
    chosen: dict[str, Line] = {}
    for line in lines:
        if line["images"] is None or chosen.get(line["name"], line)["images"] is not None:
            chosen[line["name"]] = line
    return list(chosen.values())


def with_dense(rows: Iterable[TableEntry], dense: list[TableEntry]) -> list[TableEntry]:
    """The rows, with that of each dense network before the first one that starts from it."""
    shown: list[TableEntry] = []
    for row in rows:
        for base in dense:
            if base not in shown and is_base(base.first, row.first):
                shown.append(base)
        shown.append(row)
    return shown


def is_base(dense: Line, line: Line) -> bool:
    """Whether the run of ``line`` started from that of ``dense``: the same data, backbone, seed, images and epochs."""
    same = all(dense[key] == line[key] for key in ("data", "backbone", "seed", "images"))
    return same and bool(dense["epochs"][0] == line["epochs"][0])


def _row(entry: TableEntry) -> str:
    line, method = entry.first, METHODS[entry.first["method"]]
    ticks = ("✓" if method.layer_adaptive else "", "✓" if method.sample_adaptive else "")
    by_paper = "" if line["method"] == "dense" else f"{100 * (1 - entry.mean('paper_flops') / line['dense_flops']):.1f}"
    errors, seeds, *sizes = _measured(entry)
    tried = "" if line["method"] == "dense" else f"{line.get('trials', '')}"
    costs = (*sizes, by_paper, _deciding(entry), length(line))
    return table_line([*_names(entry), *ticks, errors, seeds, tried, *costs, *_in_paper(line)])


def _short_row(entry: TableEntry) -> str:
    line = entry.first
    return table_line([*_names(entry), *_measured(entry), _deciding(entry), length(line), *_in_paper(line)])


def _names(entry: TableEntry) -> tuple[str, str]:
    line = entry.first
    ours = line["method"] == "sanp" and line.get("config", {}).get("preset") == "quick"
    method = display_name(line["method"])  # with the settings of ``quick`` it is not the paper's own
    name = model(line).replace(method, f"{method} (ours)") if ours else model(line)
    return display_name(line["backbone"]), name + (f" {STALE}" if entry.stale else "")


def model(line: Line) -> str:
    """The method as the paper writes it, and what the name of the row adds if its settings are not the defaults.

    A row of the preset ``paper`` says that, and its λ0.
    """
    own, config = variant(line), dict(flat_settings(line.get("config", {})))
    if config.get("preset") == "paper" and is_kind(strength := config.get("controller.strength"), float):
        return f"{display_name(line['method'])}, the paper's settings, λ0 = {strength:g}"
    return display_name(line["method"]) + (f", {own.replace('-', ' ')}" if own else "")


def variant(line: Line) -> str:
    """What the name of a row adds to its backbone and method; a budget alone is nothing."""
    own = str(line["name"]).partition(f"{line['backbone']}-{line['method']}-")[2]
    return "" if own.isdigit() else own


def _measured(entry: TableEntry) -> tuple[str, ...]:
    pruned = "" if entry.first["method"] == "dense" else f"{100 * entry.mean('pruned'):.1f}"
    errors = mean_and_deviation([100 * line["error"] for line in entry.lines])
    return errors, str(len(entry.lines)), f"{entry.mean('flops') / 1e6:.1f}", pruned


def _deciding(entry: TableEntry) -> str:
    """What deciding what to prune costs, in percent of the dense FLOPs."""
    line = entry.first
    cost = None if line["method"] == "dense" else deciding_flops(line)
    return "" if cost is None else f"{100 * cost / line['dense_flops']:.2f}"


def _reasons(rows: list[TableEntry]) -> str:
    """The settings in which stale rows differ from their recipes, a line for each row."""
    stale = [row for row in rows if row.stale]
    told = [markdown_text(f"- {row.first['name']}: {'; '.join(row.stale)}") for row in stale]
    return f"\n\n{STALE} The recipe has other settings now:\n\n" + "\n".join(told) if told else ""


def _stale_note(rows: list[TableEntry]) -> str:
    if not any(row.stale for row in rows):
        return ""
    return f"\n\n{STALE} The recipe has other settings now; [docs/results.md](docs/results.md) says which."


def _in_paper(line: Line) -> list[str]:
    return ["" if number is None else f"{number:g}" for number in PAPER.get(line["name"], (None, None, None))]


def length(line: Line) -> str:
    """How long the network was trained: epochs of pretraining and of pruning, and the images if not all were used."""
    pretrain, warmup, joint = line["epochs"]
    epochs = str(pretrain) if line["method"] == "dense" else f"{pretrain} + {warmup + joint}"
    if line.get("config", {}).get("preset") == "paper" and joint != PAPER_EPOCHS:
        epochs += f" (scaled by {joint / PAPER_EPOCHS:.2g})"
    return epochs if line["images"] is None else f"{epochs}, short: {line['images']} images"
