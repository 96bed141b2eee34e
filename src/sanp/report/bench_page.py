"""The page of a benchmark: what pruning saves in time on one machine, as one HTML file like that of a run."""

from pathlib import Path

from sanp.core.files import write_text
from sanp.engine.bench.bench import OWN, Bench
from sanp.report.charts.headline import Number
from sanp.report.charts.times import best_dense, shown_first, time_bars, time_by_flops, times_table
from sanp.report.frame import frame, packed_charts, template


def write_bench(found: Bench, out: Path) -> Path:
    """Writes the page of a benchmark to the file ``out``."""
    write_text(out, render_bench(found))
    return out


def render_bench(found: Bench) -> str:
    """The page as text."""
    charts = [time_bars(found), time_by_flops(found)]
    return template("bench.html").render(
        found=found,
        sentence=_sentence(found),
        shown=_numbers(found),
        charts=charts,
        rows=times_table(found.rows),
        how=_how(found),
        data=packed_charts({f"bench-{chart.key}": chart for chart in charts}),
        **frame(),
    )


def _sentence(found: Bench) -> str:
    """What a reader wants to know before anything else."""
    pruned, best = shown_first(found), best_dense(found)
    start = f"With {pruned.kept:.1%} of its FLOPs the network takes {pruned.ms:.3g} ms an image"
    own = f"{1 / pruned.of_own_dense:.1f} times faster than dense in the same engine"
    if best is None:
        return f"{start}, {own}."
    return f"{start}: {best.ms / pruned.ms:.1f} times faster than dense in {best.what}, and {own}."


def _numbers(found: Bench) -> list[Number]:
    pruned, best = shown_first(found), best_dense(found)
    own = next(row for row in found.rows if row.what == OWN)
    numbers = [Number("FLOPs", "100%", f"{pruned.kept:.1%}", "convolutions, mean over the images")]
    if best is not None:
        note = f"{best.ms / pruned.ms:.2f} times faster than {best.what}"
        numbers.append(Number("time an image", f"{best.ms:.3g} ms", f"{pruned.ms:.3g} ms", note))
    note = f"{own.ms / pruned.ms:.2f} times faster than the engine's dense"
    numbers.append(Number("in the engine", f"{own.ms:.3g} ms", f"{pruned.ms:.3g} ms", note))
    for row in found.rows:
        if row.what == "OpenVINO int8" and best is not None:
            note = f"{best.ms / row.ms:.2f} times faster than {best.what}"
            numbers.append(Number("dense in int8", f"{best.ms:.3g} ms", f"{row.ms:.3g} ms", note))
    return numbers


def _how(found: Bench) -> str:
    images = "One image" if found.batch == 1 else f"{found.batch} images"
    threads = "one thread" if found.threads == 1 else f"{found.threads} threads"
    return (
        f"{images} in each call, {threads}, pinned; the engine in {found.precision}; processor: {found.processor}. "
        "Calls of all runtimes take turns, and a time is the median of its calls. It belongs to this machine while it "
        "does nothing else: other work makes times longer."
    )
