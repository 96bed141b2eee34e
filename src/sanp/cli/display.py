"""What the terminal shows of a run: a line for each stage while it trains, and the tables afterwards."""

from rich.console import Console
from rich.table import Table

from sanp.cli.console import plain
from sanp.experiments.metrics import read_metrics
from sanp.experiments.recipe import Recipe
from sanp.experiments.run import Finished
from sanp.gating.flops import human
from sanp.training.display import Display
from sanp.training.finish import finish_in_steps

FAR_FROM_BUDGET = 0.1
"""Share of the dense FLOPs above the budget from which training has left too much to the thresholds."""


def live_progress(console: Console, recipe: Recipe) -> Display:
    """What shows a run of this recipe while it trains."""
    fit = recipe.fit
    epochs = {"warm-up": fit.warmup_epochs, "joint": fit.joint_epochs}
    if recipe.pretrained is None:
        epochs = {"pretrain": fit.pretrain_epochs, **epochs}
    after = finish_in_steps(fit, recipe.batch_size)
    held_out = recipe.validate is not None
    return Display(epochs, finish=after, console=console, tested=recipe.test_every > 0, held_out=held_out)


def before_and_after(finished: Finished, budget: str) -> Table:
    """The table at the end of a run: the network before and after pruning."""
    table = Table("", "accuracy", "FLOPs per image", "of dense", title=f"budget {plain(budget)}")
    for name, report in (("before", finished.dense), ("after", finished.pruned)):
        table.add_row(name, f"{report.accuracy:.2%}", human(report.flops), f"{report.kept:.2%}")
    table.caption = left_to_thresholds(finished)
    return table


def left_to_thresholds(finished: Finished) -> str | None:
    """What to tell the user of a run whose training ended far above its budget; None for other runs."""
    epochs = read_metrics(finished.folder)
    cost = epochs[-1]["cost"] if epochs else None
    if cost is None or cost <= finished.pruned.kept + FAR_FROM_BUDGET:
        return None
    return (
        f"training ended at {cost:.0%} of the FLOPs and the thresholds closed the rest, which costs accuracy: train "
        "longer, or with a higher fit.spm_lr"
    )
