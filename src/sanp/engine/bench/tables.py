"""Benchmarks as Markdown tables and as a figure of time against FLOPs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sanp.core.colours import BLUE, GREEN, GREY, ORANGE, PINK
from sanp.core.errors import SanpError
from sanp.core.files import check_replaceable, write_text
from sanp.engine.bench.bench import AS_IT_IS, GATES_OPEN

FIGURE_SUFFIXES = (".html", ".svg", ".png", ".pdf")
_ENGINE = "engine, "
_HALF = f"{_ENGINE}50% pruned"


def engine_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of results: how many times faster each is than the fastest dense runtime.

    In brackets, than the engine's own dense network. Of several lines with one network, batch and number of threads the
    last counts.
    """
    newest = {(line["network"], line["batch"], line["threads"]): line for line in lines}
    pruned = sorted({row["what"] for line in newest.values() for row in line["rows"] if _is_pruned(row["what"])})
    heads = ["nothing pruned", *(what.removeprefix(_ENGINE) for what in pruned)]
    head = f"| | batch | threads | best dense runtime | {' | '.join(heads)} | bf16 | int8 |"
    table = [head, "|---" * (len(heads) + 6) + "|"]
    for (network, batch, threads), line in newest.items():
        rows = {row["what"]: row for row in line["rows"]}
        cells = [_cell(rows.get(what)) for what in (f"{_ENGINE}dense", *pruned)]
        cells += [_cell(rows.get(f"OpenVINO {precision}"), own=False) for precision in ("bf16", "int8")]
        table.append(f"| {network} | {batch} | {threads} | {_best(rows)} | {' | '.join(cells)} |")
    return "\n".join(table)


def zoo_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of the results with gates that are all open; of several lines with one network the last counts.

    Numbers say how many times faster than the fastest dense fp32 runtime of the same run.
    """
    newest = {line["network"]: line for line in lines if _has_open_gates(line)}
    heads = {"dense": f"{_ENGINE}dense", "all gates open": GATES_OPEN, "50% pruned": _HALF}
    table = [f"| | best dense runtime | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for network, line in newest.items():
        rows = {row["what"]: row for row in line["rows"]}
        cells = [_cell(rows.get(what), own=False) for what in heads.values()]
        table.append(f"| {network} | {_best(rows)} | {' | '.join(cells)} |")
    return "\n".join(table)


def trained_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of networks that were trained, by their own gates; of several lines of one and a batch the last.

    Numbers say how many times faster than the fastest dense fp32 runtime of the same run.
    """
    newest = {(line["network"], line["batch"]): line for line in lines}
    heads = ("", "batch", "FLOPs", "best dense runtime", "dense, int8", "pruned", "pruned, int8")
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (network, batch), line in newest.items():
        fp32, int8 = ({row["what"]: row for row in line[rows]} for rows in ("rows", "int8"))
        times = (fp32.get("OpenVINO int8"), fp32[AS_IT_IS], int8[AS_IT_IS])
        cells = [f"{fp32[AS_IT_IS]['kept']:.1%}", _best(fp32), *(_cell(row, own=False) for row in times)]
        table.append(f"| {network} | {batch} | {' | '.join(cells)} |")
    return "\n".join(table)


def int8_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of the engine in int8; of several lines with one network and batch the last counts.

    A cell has the time as a share of the fastest dense fp32 runtime's, and of OpenVINO's dense int8.
    """
    newest = {(line["network"], line["batch"], line["threads"]): line for line in lines}
    pruned = sorted({row["what"] for line in newest.values() for row in line["rows"] if _is_pruned(row["what"])})
    heads = ["nothing pruned", *(what.removeprefix(_ENGINE) for what in pruned)]
    table = [f"| | batch | best dense fp32 | dense int8 | {' | '.join(heads)} |", "|---" * (len(heads) + 4) + "|"]
    for (network, batch, _), line in newest.items():
        rows = {row["what"]: row for row in line["rows"]}
        rival = rows.get("OpenVINO int8")
        cells = [_both(rows.get(what), rival) for what in (f"{_ENGINE}dense", *pruned)]
        named = "none" if rival is None else f"OpenVINO, {rival['ms']:.2f} ms"
        table.append(f"| {network} | {batch} | {_best(rows)} | {named} | {' | '.join(cells)} |")
    return "\n".join(table)


def _both(row: Mapping[str, Any] | None, rival: Mapping[str, Any] | None) -> str:
    if row is None or rival is None or row["of_best_dense"] is None:
        return ""
    return f"{row['of_best_dense']:.2f} / {row['ms'] / rival['ms']:.2f}"


def without_open_gates(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The results that :func:`zoo_table` leaves out."""
    return [line for line in lines if not _has_open_gates(line)]


def _has_open_gates(line: Mapping[str, Any]) -> bool:
    return any(row["what"] == GATES_OPEN for row in line["rows"])


def _best(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest dense runtime, and its time."""
    best = min((row for row in rows.values() if row["of_best_dense"] == 1), key=lambda row: row["ms"], default=None)
    return "none" if best is None else f"{best['what']}, {best['ms']:.2f} ms"


def threads_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of how much faster several threads are than one, by medians.

    In brackets, by the fastest tenth of the calls, where a line has that. Of several lines with one network, batch and
    number of threads the last counts.
    """
    newest = {(line["network"], line["batch"], line["threads"]): line for line in lines}
    columns = list(dict.fromkeys(what for line in newest.values() for what in line["gains"]))
    table = [f"| | batch | threads | {' | '.join(columns)} |", "|---" * (len(columns) + 3) + "|"]

    def cell(line: Mapping[str, Any], what: str) -> str:
        fastest = line.get("fastest tenth", {})
        second = f" ({fastest[what]:.2f})" if what in fastest else ""
        return f"{line['gains'][what]:.2f}{second}" if what in line["gains"] else ""

    for (network, batch, threads), line in newest.items():
        table.append(f"| {network} | {batch} | {threads} | {' | '.join(cell(line, what) for what in columns)} |")
    return "\n".join(table)


def _is_pruned(what: str) -> bool:
    return what.startswith(_ENGINE) and what.endswith("pruned")


def _cell(row: Mapping[str, Any] | None, *, own: bool = True) -> str:
    if row is None or row["of_best_dense"] is None:
        return ""
    second = f" ({1 / row['of_own_dense']:.1f})" if own else ""
    return f"{1 / row['of_best_dense']:.1f}{second}"


def time_against_flops(lines: Iterable[Mapping[str, Any]]) -> Any:
    """A plotly figure of results: one curve for each network, batch and number of threads.

    A dotted line shows where time would be proportional to FLOPs.
    """
    import plotly.graph_objects as go

    newest = {(line["network"], line["batch"], line["threads"]): line for line in lines}
    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="ideal", line={"color": GREY, "dash": "dot"})
    colours = [BLUE, ORANGE, GREEN, PINK]
    for number, ((network, batch, threads), line) in enumerate(newest.items()):
        own = sorted((row for row in line["rows"] if row["what"].startswith(_ENGINE)), key=lambda row: row["kept"])
        others = [row for row in line["rows"] if not row["what"].startswith(_ENGINE)]
        name = f"{network}, batch {batch}" + (f", {threads} threads" if threads > 1 else "")
        colour = colours[number % len(colours)]
        dash = "solid" if number < len(colours) else "dash"
        figure.add_scatter(
            **_points(own), mode="lines+markers", name=f"{name}: sanp", line={"color": colour, "dash": dash}
        )
        figure.add_scatter(
            **_points(others), mode="markers", name=f"{name}: dense runtimes", marker={"color": colour, "symbol": "x"}
        )
    figure.update_xaxes(title="FLOPs, of dense", range=[0, 1.05], tickformat=".0%")
    figure.update_yaxes(title="time, of the fastest dense fp32 runtime", rangemode="tozero")
    figure.update_layout(
        title="Time against FLOPs", width=760, height=520, plot_bgcolor="white", paper_bgcolor="white",
        margin={"l": 60, "r": 16, "t": 48, "b": 52},
    )  # fmt: skip
    figure.update_xaxes(gridcolor="#d5d9e0")
    figure.update_yaxes(gridcolor="#d5d9e0")
    return figure


def _points(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    known = [row for row in rows if row["of_best_dense"] is not None]
    return {
        "x": [row["kept"] for row in known],
        "y": [row["of_best_dense"] for row in known],
        "text": [f"{row['what']}: {row['ms']:.2f} ms" for row in known],
    }


def check_figure(path: Path) -> None:
    """Raises an error if no figure can be written to a file of this name."""
    if path.suffix not in FIGURE_SUFFIXES:
        raise SanpError(f"{path} has no known ending: choose one of {', '.join(FIGURE_SUFFIXES)}")
    if path.is_dir():
        raise SanpError(f"{path} is a folder: give the name of a file in it")


def write_figure(figure: Any, path: Path) -> None:
    """Writes a figure as a page, or as an image, which wants a Chromium on this machine."""
    check_figure(path)
    try:
        if path.suffix == ".html":
            write_text(path, figure.to_html(include_plotlyjs=True))
            return
        check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        import kaleido

        kaleido.write_fig_sync(figure, path, opts={"format": path.suffix[1:]}, kopts={"mathjax": False})
    except ImportError as error:
        raise SanpError(
            "images need kaleido: pip install 'sanp[figures]', or give a file that ends in .html"
        ) from error
    except OSError as error:
        raise SanpError(f"{path} cannot be written ({error.strerror}): choose another file") from error
