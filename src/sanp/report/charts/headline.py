"""The answer first: accuracy and FLOPs before and after, the budget, the time, and the paper's row beside ours."""

from dataclasses import dataclass

from sanp.gating.flops import human
from sanp.report.charts.chart import Cell, Table, millions, percent
from sanp.report.charts.paper import PaperRow, paper_row
from sanp.report.run_data import Source


@dataclass(frozen=True)
class Figure:
    """A number large enough to be seen first."""

    name: str
    before: str
    after: str
    note: str


@dataclass(frozen=True)
class Answer:
    """What a reader wants to know before anything else."""

    sentence: str
    figures: tuple[Figure, ...]
    table: Table
    remark: str
    """how far the paper's row can be compared, or empty"""


def answer(source: Source) -> Answer:
    """From a run's report."""
    recipe, report = source.recipe, source.report
    row = paper_row(recipe.data, recipe.backbone, recipe.method, report.kept)
    return Answer(
        sentence=(
            f"{recipe.method} on {recipe.backbone} and {recipe.data}: {report.kept:.1%} of the multiply-adds are left "
            f"(budget {recipe.budget}), and {report.accuracy:.2%} of {len(report.per_sample):,} test images are right, "
            f"{source.dense_accuracy:.2%} before."
        ),
        figures=tuple(_figures(source)),
        table=_table(source, row),
        remark="" if row is None else _remark(source),
    )


def _figures(source: Source) -> list[Figure]:
    report = source.report
    points = 100 * (report.accuracy - source.dense_accuracy)
    change = f"{points:+.2f} points".replace("-", "−")
    target = source.target
    asked = f"budget {source.recipe.budget}" if target is None else f"budget {target:.1%}"
    found = [
        Figure(
            "accuracy",
            f"{source.dense_accuracy:.2%}",
            f"{report.accuracy:.2%}",
            change,
        ),
        Figure("multiply-adds per image", human(report.dense_flops), human(report.flops), "convolutions, mean"),
        Figure("of the dense cost", "100%", f"{report.kept:.1%}", asked),
    ]
    if report.overhead_flops:
        share = report.overhead_flops / report.dense_flops
        found.append(Figure("added to decide", "0", human(report.overhead_flops), f"{share:.2%} of dense"))
    if source.seconds is not None:
        before = source.dense_seconds
        faster = "" if before is None else f"{before / source.seconds:.2f} times as fast"
        shown = "" if before is None else f"{1e3 * before:.2f} ms"
        found.append(Figure("time per image", shown, f"{1e3 * source.seconds:.2f} ms", faster))
    return found


def _table(source: Source, row: PaperRow | None) -> Table:
    report = source.report
    rows = [
        (Cell("this run, before"), percent(1 - source.dense_accuracy, 2), millions(report.dense_flops), Cell("", 0)),
        (Cell("this run"), percent(report.error, 2), millions(report.flops), percent(report.pruned)),
    ]
    if report.paper_flops != report.flops:
        pruned = 1 - report.paper_flops / report.dense_flops
        counted = "this run, FLOPs by the paper's count"
        rows.append((Cell(counted), percent(report.error, 2), millions(report.paper_flops), percent(pruned)))
    if row is not None:
        rows.append((Cell("the paper, before"), percent(row.dense_error, 2), millions(row.dense_flops), Cell("", 0)))
        name = f"the paper, table {row.table}"
        rows.append((Cell(name), percent(row.error, 2), millions(row.flops), percent(row.pruned)))
    return Table(("network", "error", "FLOPs (M)", "pruned"), tuple(rows))


def _remark(source: Source) -> str:
    recipe = source.recipe
    epochs = [recipe.fit.pretrain_epochs, recipe.fit.warmup_epochs, recipe.fit.joint_epochs]
    images = "all training images" if recipe.limit is None else f"{recipe.limit:,} training images"
    return (
        f"This run trained on {images} for {epochs[0]}, {epochs[1]} and {epochs[2]} epochs (pretraining, warm-up, "
        "joint); the paper trained on all images and does not say for how many epochs."
    )
