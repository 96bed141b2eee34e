"""Tables of finished runs with the columns of the paper's tables, as Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from sanp.core.errors import unknown_name
from sanp.core.files import write_text
from sanp.core.plain_text import plain
from sanp.experiments.documents import table_line
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import read_report, read_run
from sanp.experiments.seeds import mean_and_deviation
from sanp.methods import METHODS

NAMES = {
    "m_cifarnet": "M-CifarNet",
    "vgg19": "VGGNet",
    "resnet18": "ResNet-18",
    "sanp": "SANP",
    "fixed_k": "FIXED K",
    "static": "STATIC",
    "fbs": "FBS",
    "gumbel": "Gumbel gates",
    "manidp": "ManiDP",
    "slimmable": "slimmable",
    "ns": "NS",
    "fcp": "FCP",
    "cg": "CG",
    "l1": "L1-norm",
    "autopruner": "AutoPruner",
    "weight": "weights",
    "rnp": "RNP",
    "d2nn": "D2NN",
    "depgraph": "DepGraph",
    "uniform": "thinner, from scratch",
    "random": "random channels",
    "dense_longer": "Unpruned, trained longer",
    "dense": "Unpruned",
}
"""backbones and methods as the paper writes them"""


def display_name(name: str) -> str:
    """The name of a backbone or method in tables; ``name`` itself if it is not in ``NAMES``.

    A method that is a simplified form of the published one says so.
    """
    simplified = name in METHODS and METHODS[name].simplified
    return NAMES.get(name, name) + (" (simplified)" if simplified else "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table: a network and its results."""

    data: str
    backbone: str
    method: str
    layer_adaptive: bool
    sample_adaptive: bool
    error: float
    """share of the test images that are classified wrongly; the mean over the seeds"""
    flops: float
    """of one image, on average"""
    dense_flops: float
    """of one image with all channels computed"""
    seconds: float | None
    """time of one image; None if it was not measured"""
    deciding: float | None = None
    """FLOPs of one image that deciding what to prune takes, which ``flops`` does not hold; None: not known"""
    errors: tuple[float, ...] = ()
    """the errors of all seeds, if there are several"""

    @property
    def pruned(self) -> float:
        """Share of the dense FLOPs that is saved."""
        return 1 - self.flops / self.dense_flops


def read_rows(folders: Iterable[Path]) -> list[Row]:
    """The rows of the finished runs in ``folders``, grouped by data set and backbone, dense networks first."""
    rows: list[Row] = []
    by_seed: dict[Recipe, list[Row]] = {}
    for folder in folders:
        recipe, (dense, *pruned) = read_run(folder), _rows_of(folder)
        if dense not in rows:
            rows.append(dense)
        for row in pruned:
            same = by_seed.setdefault(replace(recipe, seed=0, threads=None, test_every=0), [])
            if row not in same:
                same.append(row)
    rows += [_mean(same) for same in by_seed.values()]
    groups = list(dict.fromkeys((row.data, row.backbone) for row in rows))
    return sorted(rows, key=lambda row: (groups.index((row.data, row.backbone)), row.method != "dense"))


def _mean(rows: list[Row]) -> Row:
    """One row for runs that differ by their seed alone."""
    if len(rows) == 1:
        return rows[0]
    errors = tuple(row.error for row in rows)
    times = [row.seconds for row in rows if row.seconds is not None]
    return replace(
        rows[0],
        error=fmean(errors),
        errors=errors,
        flops=fmean(row.flops for row in rows),
        seconds=fmean(times) if times else None,
    )


def _rows_of(folder: Path) -> list[Row]:
    recipe, found = read_run(folder), read_report(folder)
    method = METHODS[recipe.method]
    dense = Row(
        data=recipe.data,
        backbone=recipe.backbone,
        method="dense",
        layer_adaptive=False,
        sample_adaptive=False,
        error=1 - found["dense"]["accuracy"],
        flops=found["dense"]["flops"],
        dense_flops=found["dense"]["flops"],
        seconds=found["dense"].get("seconds_per_image"),
    )
    pruned = Row(
        data=recipe.data,
        backbone=recipe.backbone,
        method=method.name,
        layer_adaptive=method.layer_adaptive,
        sample_adaptive=method.sample_adaptive,
        error=found["error"],
        flops=found["flops"],
        dense_flops=found["dense_flops"],
        seconds=found.get("seconds_per_image"),
        deciding=found["overhead_flops"],
    )
    return [dense] if method.name == "dense" else [dense, pruned]


def cells(rows: list[Row], tick: str = "✓") -> list[list[str]]:
    """The cells of the table as text, with the heading as the first row.

    ``tick`` marks methods that are layer-adaptive or sample-adaptive. There is a column for the data set only if there
    are several, one for the number of seeds only if a row has several, and those for what deciding costs and for the
    time only if it is known.
    """
    several = len({row.data for row in rows}) > 1
    timed = any(row.seconds is not None for row in rows)
    seeded = any(row.errors for row in rows)
    heading = ["Backbone", "Model", "L-a", "S-a", "Error (%)", *(["Seeds"] if seeded else []), "FLOPs (M)"]
    decided = any(row.deciding is not None for row in rows)
    heading += ["Pruned (%)", *(["Deciding (%)"] if decided else [])]
    lines = [[*(["Data"] if several else []), *heading, *(["Seconds/image"] if timed else [])]]
    for row in rows:
        line = [
            display_name(row.backbone),
            display_name(row.method),
            tick if row.layer_adaptive else "",
            tick if row.sample_adaptive else "",
            mean_and_deviation([100 * error for error in row.errors or (row.error,)]),
            *([str(max(1, len(row.errors)))] if seeded else []),
            f"{row.flops / 1e6:.1f}" if row.flops >= 1e6 else f"{row.flops / 1e6:.4f}",
            "" if row.method == "dense" else f"{100 * row.pruned:.1f}",
            *([_deciding(row)] if decided else []),
        ]
        time = "" if row.seconds is None else f"{row.seconds:.5f}"
        lines.append([*([row.data] if several else []), *line, *([time] if timed else [])])
    return lines


def _deciding(row: Row) -> str:
    return "" if row.deciding is None else f"{100 * row.deciding / row.dense_flops:.2f}"


def to_markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    heading, *lines = cells(rows)
    ruled = [heading, ["---"] * len(heading), *lines]
    return "\n".join(map(table_line, ruled)) + "\n"


def to_csv(rows: list[Row]) -> str:
    """The rows as comma-separated values; L-a and S-a are ``yes`` or empty."""
    text = io.StringIO()
    lines = ([_not_a_formula(cell) for cell in line] for line in cells(rows, tick="yes"))
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _not_a_formula(cell: str) -> str:
    """The cell as text that no spreadsheet computes; a negative number stays one."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@") or (cell[:1] == "-" and not cell[1:2].isdigit()) else cell


def to_latex(rows: list[Row]) -> str:
    """The rows as a LaTeX tabular like those of the paper, with a rule after each backbone."""
    heading, *lines = cells(rows)
    written = [r"\begin{tabular}{|" + "c|" * len(heading) + "}", r"\hline", _latex_line(heading)]
    last: tuple[str, str] | None = None
    for row, line in zip(rows, lines, strict=True):
        group = (row.data, row.backbone)
        if group != last:
            written.append(r"\hline")
        written.append(_latex_line(line))
        last = group
    return "\n".join([*written, r"\hline", r"\end{tabular}"]) + "\n"


def _latex_line(line: list[str]) -> str:
    return " & ".join(plain(cell).translate(_LATEX) for cell in line) + r" \\"


_LATEX = str.maketrans(
    {each: f"\\{each}" for each in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "✓": r"\checkmark"}
)
"""characters that LaTeX would read as its own, and the tick"""


TABLE_FORMATS: dict[str, Callable[[list[Row]], str]] = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


def write_table(rows: list[Row], path: Path) -> None:
    """Writes the rows to the file ``path``, as Markdown, CSV or LaTeX by its ending."""
    if path.suffix not in ENDINGS:
        raise unknown_name("kind of table file", path.suffix or path.name, ENDINGS)
    write_text(path, TABLE_FORMATS[ENDINGS[path.suffix]](rows))
