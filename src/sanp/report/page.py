"""The page: everything about one run or several in a single HTML file, which loads nothing from anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.core.files import write_text
from sanp.report.charts.runs_table import runs_table
from sanp.report.charts.trade_off import trade_off_of_runs
from sanp.report.frame import frame, packed_charts, template
from sanp.report.run_data import RunData, read_runs
from sanp.report.run_section import RunSection, run_section

LARGEST_PAGE = 5_900_000
"""bytes of a page: what any mail server lets through"""


def write_page(
    folders: list[Path], out: Path, device: torch.device = CPU, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """Writes the page of the runs in these folders to the file ``out``; their networks run on ``device``.

    ``tell`` gets a line about each run of which a part cannot be shown.
    """
    html = render(read_runs(folders, device, tell))
    if out.is_dir():
        raise SanpError(f"{out} is a folder: give --out the name of an HTML file")
    write_text(out, html)
    return out


def render(runs: list[RunData]) -> str:
    """The page as text; runs whose details would make it too large are in the comparison only."""
    overview = trade_off_of_runs(runs) if len(runs) > 1 else None
    given: dict[str, Any] = {
        "runs": runs,
        "overview": overview,
        "overview_table": runs_table(runs),
        "data": packed_charts({f"overview-{overview.key}": overview} if overview else {}),
        **frame(),
    }
    page, of_a_run = template("page.html"), template("run.html")
    size = len(page.render(**given, sections=[], left_out=runs).encode("utf-8"))
    shown, left_out = [], []
    for index, run in enumerate(runs):
        section = run_section(run)
        text = of_a_run.render(section=section, prefix=f"run{index}", data=_section_data(section, index))
        if size + len(text.encode("utf-8")) > LARGEST_PAGE:
            left_out.append(run)
        else:
            size += len(text.encode("utf-8"))
            shown.append(Markup(text))
    return page.render(**given, sections=shown, left_out=left_out)


def _section_data(section: RunSection, index: int) -> str:
    """The section's charts for the script, by the names that the template gives them."""
    charts = {f"run{index}-{chart.key}": chart for chart in section.charts}
    if section.channels is not None:
        for option, chosen in section.channels.options.items():
            charts |= {f"run{index}-{chart.key}|{option}": chart for chart in chosen}
    return packed_charts(charts)
