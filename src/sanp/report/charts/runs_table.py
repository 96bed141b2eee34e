"""The table of several runs."""

from sanp.report.charts.table import Cell, Table, millions, percent
from sanp.report.run_data import RunData


def runs_table(runs: list[RunData]) -> Table:
    """A row for each run; the time per image stands in it if any of the runs was timed."""
    headings = ("run", "backbone", "data", "method", "budget", "error before", "error", "FLOPs (M)", "kept", "pruned")
    timed = any(run.seconds is not None for run in runs)
    rows = []
    for run in runs:
        recipe, report = run.recipe, run.report
        row = [
            Cell(run.name),
            Cell(recipe.backbone),
            Cell(recipe.data),
            Cell(recipe.method),
            Cell(recipe.budget, run.target),
            percent(1 - run.dense_accuracy, 2),
            percent(report.error, 2),
            millions(report.flops),
            percent(report.kept),
            percent(report.pruned),
        ]
        if timed:
            seconds = run.seconds
            row.append(Cell("", 1e9) if seconds is None else Cell(f"{1e3 * seconds:.2f}", seconds))  # untimed ones last
        rows.append(tuple(row))
    return Table(headings + (("ms per image",) if timed else ()), tuple(rows))
