"""Markdown tables of the reproduced results with the numbers of the paper beside them, made from results lines."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sanp.experiments.results import read
from sanp.experiments.table import NAMES, shown
from sanp.methods import METHODS

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
    "| Backbone | Model | L-a | S-a | Error (%) | FLOPs (M) | Pruned (%) | by the paper's count | Deciding (%) "
    "| Epochs | Paper: error | FLOPs | pruned |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)
SHORT_HEADING = (
    "| Backbone | Model | Error (%) | FLOPs (M) | Pruned (%) | Deciding (%) | Epochs | Paper: error | FLOPs "
    "| pruned |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)
Line = dict[str, Any]
"""a line of a results file"""


def results_page(results: Path) -> str:
    """The tables of docs/results.md, from the results files in the folder ``results``."""
    dense = list(read(results / "dense.jsonl"))
    parts = []
    for table, title in TABLES.items():
        lines = [line for line in read(results / f"{table}.jsonl") if is_whole(line)]
        if lines:
            rows = (_row(line) for line in with_dense(lines, dense))
            parts.append(f"### {title}\n\n{HEADING}\n" + "\n".join(rows))
    return "\n\n".join(parts) or "No row is finished yet: `sanp reproduce table1` runs those of table 1."


def readme_table(results: Path) -> str:
    """The table of the README, from the results files in the folder ``results``.

    It has the CIFAR-10 rows with default settings, of whole runs.
    """
    lines = [line for table in ("table1", "methods", "table3") for line in read(results / f"{table}.jsonl")]
    dense = list(read(results / "dense.jsonl"))
    chosen = latest(line for line in lines if line["data"] == "cifar10" and not variant(line) and is_whole(line))
    if not chosen:
        return "No run is finished yet: `sanp reproduce table1` adds a row here for each that is."
    order = {name: place for place, name in enumerate(NAMES)}
    grouped = sorted(chosen, key=lambda line: order.get(line["backbone"], len(order)))
    return SHORT_HEADING + "\n" + "\n".join(_short_row(line) for line in with_dense(grouped, dense))


def is_whole(line: Line) -> bool:
    """The run trained on all images; a short one shows only that everything works."""
    return line["images"] is None


def latest(lines: Iterable[Line]) -> list[Line]:
    """The last line of each row; one of a short run only if there is none of a whole run."""
    chosen: dict[str, Line] = {}
    for line in lines:
        if line["images"] is None or chosen.get(line["name"], line)["images"] is not None:
            chosen[line["name"]] = line
    return list(chosen.values())


def with_dense(lines: Iterable[Line], dense: list[Line]) -> list[Line]:
    """The lines, with the line of each dense network before the first line that starts from it."""
    shown: list[Line] = []
    for line in lines:
        for base in dense:
            if base not in shown and is_base(base, line):
                shown.append(base)
        shown.append(line)
    return shown


def is_base(dense: Line, line: Line) -> bool:
    """Whether the run of ``line`` started from that of ``dense``: the same data, backbone, seed, images and epochs."""
    same = all(dense[key] == line[key] for key in ("data", "backbone", "seed", "images"))
    return same and bool(dense["epochs"][0] == line["epochs"][0])


def _row(line: Line) -> str:
    method = METHODS[line["method"]]
    ticks = ("✓" if method.layer_adaptive else "", "✓" if method.sample_adaptive else "")
    by_paper = "" if line["method"] == "dense" else f"{100 * (1 - line['paper_flops'] / line['dense_flops']):.1f}"
    return _joined([*_names(line), *ticks, *_measured(line), by_paper, _deciding(line), length(line), *_in_paper(line)])


def _short_row(line: Line) -> str:
    return _joined([*_names(line), *_measured(line), _deciding(line), length(line), *_in_paper(line)])


def _joined(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _names(line: Line) -> tuple[str, str]:
    ours = line["method"] == "sanp" and line.get("config", {}).get("preset") == "quick"
    method = shown(line["method"])  # with the settings of ``quick`` it is not the paper's own
    return shown(line["backbone"]), model(line).replace(method, f"{method} (ours)") if ours else model(line)


def model(line: Line) -> str:
    """The method as the paper writes it, and what the name of the row adds if its settings are not the defaults."""
    own = variant(line)
    return shown(line["method"]) + (f", {own.replace('-', ' ')}" if own else "")


def variant(line: Line) -> str:
    """What the name of a row adds to its backbone and method; a budget alone is nothing."""
    own = str(line["name"]).partition(f"{line['backbone']}-{line['method']}-")[2]
    return "" if own.isdigit() else own


def _measured(line: Line) -> tuple[str, str, str]:
    pruned = "" if line["method"] == "dense" else f"{100 * line['pruned']:.1f}"
    return f"{100 * line['error']:.2f}", f"{line['flops'] / 1e6:.1f}", pruned


def _deciding(line: Line) -> str:
    """What deciding what to prune costs, in percent of the dense FLOPs; lines of before it was noted have none."""
    cost = line.get("overhead_flops")
    return "" if cost is None or line["method"] == "dense" else f"{100 * cost / line['dense_flops']:.2f}"


def _in_paper(line: Line) -> list[str]:
    return ["" if number is None else f"{number:g}" for number in PAPER.get(line["name"], (None, None, None))]


def length(line: Line) -> str:
    """How long the network was trained: epochs of pretraining and of pruning, and the images if not all were used."""
    pretrain, warmup, joint = line["epochs"]
    epochs = str(pretrain) if line["method"] == "dense" else f"{pretrain} + {warmup + joint}"
    return epochs if line["images"] is None else f"{epochs}, short: {line['images']} images"
