"""The headline of a run: accuracy and FLOPs before and after, the budget, the time, and the paper's row beside ours."""

from dataclasses import dataclass

from sanp.gating.flops import human
from sanp.report.charts.paper_row import PaperRow, paper_row
from sanp.report.charts.table import Cell, Table, millions, percent
from sanp.report.run_data import RunData


@dataclass(frozen=True)
class Number:
    """A number in large type, before and after pruning."""

    name: str
    before: str
    after: str
    note: str


@dataclass(frozen=True)
class Headline:
    """What a reader wants to know before anything else."""

    sentence: str
    numbers: tuple[Number, ...]
    table: Table
    remark: str
    """how far the paper's row can be compared, or empty"""


def headline(run: RunData) -> Headline:
    """The headline from a run's report."""
    recipe, report = run.recipe, run.report
    row = paper_row(recipe.data, recipe.backbone, recipe.method, report.kept)
    return Headline(
        sentence=(
            f"{recipe.method} on {recipe.backbone} and {recipe.data}: {report.kept:.1%} of the multiply-adds are left "
            f"(budget {recipe.budget}), and {report.accuracy:.2%} of {len(report.per_sample):,} test images are right, "
            f"{run.dense_accuracy:.2%} before."
        ),
        numbers=tuple(_numbers(run)),
        table=_table(run, row),
        remark="" if row is None else _remark(run),
    )


def _numbers(run: RunData) -> list[Number]:
    report = run.report
    points = 100 * (report.accuracy - run.dense_accuracy)
    change = f"{points:+.2f} points".replace("-", "−")
    target = run.target
    asked = f"budget {run.recipe.budget}" if target is None else f"budget {target:.1%}"
    found = [
        Number("accuracy", f"{run.dense_accuracy:.2%}", f"{report.accuracy:.2%}", change),
        Number("multiply-adds per image", human(report.dense_flops), human(report.flops), "convolutions, mean"),
        Number("of the dense cost", "100%", f"{report.kept:.1%}", asked),
    ]
    if report.overhead_flops:
        share = report.overhead_flops / report.dense_flops
        found.append(Number("added to decide", "0", human(report.overhead_flops), f"{share:.2%} of dense"))
    if run.seconds is not None:
        before = run.dense_seconds
        where = "engine, one thread"
        faster = where if before is None else f"{before / run.seconds:.2f} times faster, {where}"
        shown = "" if before is None else f"{1e3 * before:.2f} ms"
        found.append(Number("time per image", shown, f"{1e3 * run.seconds:.2f} ms", faster))
    return found


def _table(run: RunData, row: PaperRow | None) -> Table:
    report = run.report
    rows = [
        (Cell("this run, before"), percent(1 - run.dense_accuracy, 2), millions(report.dense_flops), Cell("", 0)),
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


def _remark(run: RunData) -> str:
    recipe = run.recipe
    epochs = [recipe.fit.pretrain_epochs, recipe.fit.warmup_epochs, recipe.fit.joint_epochs]
    images = "all training images" if recipe.limit is None else f"{recipe.limit:,} training images"
    return (
        f"This run trained on {images} for {epochs[0]}, {epochs[1]} and {epochs[2]} epochs (pretraining, warm-up, "
        "joint); the paper trained on all images and does not say for how many epochs."
    )
