"""Error against milliseconds of the networks that come with the package: results/tradeoff.jsonl and README's figure.

    python benchmarks/tradeoff.py errors     # on CIFAR-10's 10,000 test images, by the very calls that are timed
    python benchmarks/tradeoff.py times      # one image, one pinned thread, calls in turns, medians of processor time
    python benchmarks/tradeoff.py figure     # measures nothing: the figure and the table from the lines

A contender is a network in a runtime, called with one image at a time. Another one, of another precision say, is a
line in `contenders`. Ranges of int8 are set on training images.
"""

import argparse
import itertools
import os
import statistics
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sanp
from sanp.core.colours import BLUE, GREEN, GREY, ORANGE
from sanp.data import Batches
from sanp.engine.bench.runtimes import dense_calls
from sanp.engine.bench.tables import write_figure
from sanp.engine.bench.turns import durations
from sanp.engine.tuning_cache import processor
from sanp.experiments import run_folder
from sanp.experiments.documents import fill
from sanp.experiments.results import append, commit, read_results
from sanp.experiments.shipped import of_one_budget, result_of, shipped
from sanp.report.charts.style import LIGHT

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "tradeoff.jsonl"
FIGURE = ROOT / "docs" / "figures" / "error-against-time.svg"
QUOTED = (ROOT / "README.md", ROOT / "docs" / "index.md")
DENSE = "m_cifarnet-cifar10"
OWN = "dense, fp32: sanp"
REFERENCE = "dense, fp32: OpenVINO"
INT8 = "dense, int8: OpenVINO"
OWN_INT8 = "dense, int8: sanp"
PRUNED, PRUNED_INT8 = "pruned, fp32", "pruned, int8"
CALIBRATION = 512
"""training images that ranges are found from, by OpenVINO from the first 64 of them"""
SERIES = {
    "dense, fp32": (GREY, "circle", "bottom center"),
    "dense, int8": (ORANGE, "diamond", "bottom center"),
    PRUNED: (BLUE, "square", "top right"),
    PRUNED_INT8: (GREEN, "star", "top center"),
}
"""by the start of a contender's name: colour, mark, and where its name stands"""

Answer = Callable[[], Any]
"""computes the logits of the image that lies in the buffer"""


def contenders(x: Tensor, calibration: Tensor) -> dict[str, Answer]:
    """What is compared; each call reads the buffer ``x`` of one image. ``calibration`` sets the ranges of int8."""
    dense = sanp.pretrained(DENSE)
    runtimes, missing = dense_calls(dense, x, calibration, threads=1, wanted=("OpenVINO", "OpenVINO int8"))
    if missing:
        raise SystemExit(f"cannot compare: {missing}")
    return {
        REFERENCE: runtimes["OpenVINO"],
        INT8: runtimes["OpenVINO int8"],
        OWN: _engine(dense, x),
        OWN_INT8: _engine(dense, x, calibration),
        **{f"{PRUNED}: {label}": _engine(sanp.pretrained(name), x) for name, label in pruned_names().items()},
        **{
            f"{PRUNED_INT8}: {label}": _engine(sanp.pretrained(name), x, calibration)
            for name, label in pruned_names().items()
        },
    }


def _engine(network: nn.Module, x: Tensor, calibration: Tensor | None = None) -> Answer:
    """The network in the engine, in int8 if there is a calibration."""
    precision = "fp32" if calibration is None else "int8"
    fast = sanp.compile(network, x, threads=1, precision=precision, calibration=calibration)
    return lambda: fast(x)


def pruned_names() -> dict[str, str]:
    """The shipped networks that were pruned from :data:`DENSE` to one budget, and what each is called in the figure."""
    found = [name for name in of_one_budget() if name.startswith(f"{DENSE}-")]
    return {name: f"sanp, {kept(name):.0%} kept" for name in found}


def kept(name: str) -> float:
    """The share of the dense FLOPs that a shipped network computes, by its results line."""
    line = result_of(name)
    return float(line["flops"]) / float(line["dense_flops"])


def data() -> tuple[Batches, Tensor]:
    """CIFAR-10's test images in batches, and some of its training images, normalised as the networks want them."""
    dataset = run_folder.load_data(run_folder.read_run(shipped(DENSE)))
    training = Batches(dataset.train, CALIBRATION, mean=dataset.mean, std=dataset.std)
    return run_folder.evaluation_batches(dataset), next(iter(training))[0]


def first(output: Any) -> np.ndarray:
    """The logits, whatever a runtime wraps them in."""
    return np.asarray(output if isinstance(output, Tensor) else next(iter(output.values())))


def errors() -> dict[str, float]:
    """For each contender the share of the test images that it has wrong, one image in each call."""
    batches, calibration = data()
    x = calibration[:1].clone()
    wrong: dict[str, int] = {}
    calls, count = contenders(x, calibration), 0
    with torch.no_grad():
        for images, labels in batches:
            for image, label in zip(images, labels, strict=True):
                x.copy_(image[None])
                count += 1
                for what, call in calls.items():
                    wrong[what] = wrong.get(what, 0) + int(first(call()).argmax() != int(label))
    return {what: number / count for what, number in wrong.items()}


def times(seconds: float) -> dict[str, float]:
    """For each contender the median milliseconds of an image; test images go by in turn."""
    batches, calibration = data()
    x = calibration[:1].clone()
    images = itertools.cycle(next(iter(batches))[0])

    def timed(call: Answer) -> Answer:
        def with_next_image() -> Any:
            x.copy_(next(images)[None])
            return call()

        return with_next_image

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    calls = {what: timed(call) for what, call in contenders(x, calibration).items()}
    with torch.no_grad():
        found = durations(calls, seconds * len(calls), time.process_time)
    return {what: 1e3 * statistics.median(taken) for what, taken in found.items()}


def points(lines: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """By contender, milliseconds and error: of each the newest line that has it."""
    newest: dict[str, dict[str, float]] = {"ms": {}, "error": {}}
    for line in lines:
        newest[line["measured"]] |= line["values"]
    return {what: (ms, newest["error"][what]) for what, ms in newest["ms"].items() if what in newest["error"]}


def tradeoff_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of the points, and how many times faster each is than the dense network in OpenVINO."""
    found = points(lines)
    base = found[REFERENCE][0]
    rows = ["| M-CifarNet on CIFAR-10 | error (%) | ms an image | times faster |", "|---|---|---|---|"]
    rows += [f"| {what} | {100 * error:.2f} | {ms:.2f} | {base / ms:.1f} |" for what, (ms, error) in found.items()]
    return "\n".join(rows)


def headline(lines: Iterable[Mapping[str, Any]]) -> str:
    """The figure in words: what the most pruned network gains over the dense one, and what that costs."""
    found = points(lines)
    base, dense_error = found[REFERENCE]
    ms, error, what = min((*point, what) for what, point in found.items() if what.startswith(PRUNED))
    share = what.rpartition(", ")[2].removesuffix(" kept")
    text = (
        f"M-CifarNet on CIFAR-10, one image on one thread: pruned to {share} of its FLOPs it is "
        f"**{base / ms:.1f} times faster** than dense in OpenVINO, with an error of {100 * error:.2f} % "
        f"instead of {100 * dense_error:.2f} %. "
        f"Dense int8 is {base / found[INT8][0]:.1f} times faster, with {100 * found[INT8][1]:.2f} %"
    )
    both = [(*point, what) for what, point in found.items() if what.startswith(PRUNED_INT8)]
    if both:
        ms, error, _ = min(both)
        text += f"; both together, pruned and in int8, {base / ms:.1f} times, with {100 * error:.2f} %"
    text += "."
    return textwrap.fill(text, 120, break_long_words=False)


def figure(lines: Iterable[Mapping[str, Any]]) -> Any:
    """Error against milliseconds, a mark for each contender with its name beside it."""
    import plotly.graph_objects as go

    found = points(lines)
    longest = max(ms for ms, _ in found.values())
    errors = [100 * error for _, error in found.values()]
    drawn = go.Figure()
    for what, (ms, error) in found.items():
        colour, symbol, beside = next(mark for series, mark in SERIES.items() if what.startswith(series))
        edge = "white"
        if what == OWN_INT8:  # the other one stands in the same place
            symbol, beside, edge = "diamond-open", "top center", colour
        precision, runtime = what.split(": ", 1)
        label = f"<b>{precision}</b><br>{runtime}<br>{ms:.2f} ms"
        drawn.add_scatter(
            x=[ms], y=[100 * error], mode="markers+text", text=[label], showlegend=False, cliponaxis=False,
            marker={"color": colour, "symbol": symbol, "size": 16, "line": {"color": edge, "width": 1}},
            textposition=beside, textfont={"color": LIGHT[0], "size": 13},
        )  # fmt: skip
    axis = {"gridcolor": LIGHT[1], "zeroline": False, "ticks": "outside", "tickcolor": LIGHT[1]}
    drawn.update_xaxes(title="milliseconds for one image, one thread", range=[0, 1.12 * longest], **axis)
    drawn.update_yaxes(title="error on CIFAR-10 (%)", range=[min(errors) - 1, max(errors) + 0.8], **axis)
    drawn.update_layout(
        template="none", width=760, height=340, plot_bgcolor="white", paper_bgcolor="white",
        margin={"l": 60, "r": 20, "t": 14, "b": 52}, font={"color": LIGHT[0], "size": 13},
    )  # fmt: skip
    return drawn


def draw(lines: list[dict[str, Any]]) -> None:
    """Writes the figure, the table and the sentence into the documents that quote them."""
    write_figure(figure(lines), FIGURE)
    fill(ROOT / "README.md", "tradeoff", tradeoff_table(lines))
    for document in QUOTED:
        fill(document, "headline", headline(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["errors", "times", "figure"])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each contender")
    parser.add_argument("--print", action="store_true", help="print only: no line, no figure")
    given = parser.parse_args()
    if given.what != "figure":
        measured, values = ("error", errors()) if given.what == "errors" else ("ms", times(given.seconds))
        print(*(f"{what}: {value:.4f}" for what, value in values.items()), sep="\n")
        if not given.print:
            line = {"measured": measured, "values": values, "processor": processor(), "commit": commit()}
            append(RESULTS, line)
    if not given.print and given.what != "errors":
        draw(list(read_results(RESULTS)))


if __name__ == "__main__":
    main()
