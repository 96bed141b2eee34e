"""Running the stages of a training to their end: shown while they run, and kept as a history."""

from contextlib import nullcontext

from torch import nn

from sanp.core import distributed
from sanp.training.display import Display
from sanp.training.history import History
from sanp.training.stage import Progress, Stage, Stages, Watch, drive


def watched(
    stages: Stages,
    epochs: dict[str, int],
    progress: bool,
    on_step: Watch | None,
    *,
    finish: float = 0.0,
) -> History:
    """Runs all stages to their end, shows how far they are if ``progress`` says so, and returns their history.

    ``epochs`` are those of each stage and ``finish`` the steps that follow them, for the time left.
    """
    history = History()
    display = Display(epochs, finish=finish) if progress and distributed.rank() == 0 else None

    def see(step: Progress) -> None:
        history.step(step)
        if display is not None:
            display(step)
        if on_step is not None:
            on_step(step)

    with display or nullcontext():
        run_stages(stages, see)
    return history


def run_stages(stages: Stages, on_step: Watch | None = None) -> nn.Module:
    """Runs all stages to their end and returns the finished network.

    ``on_step`` is called with a :class:`Progress` after each step.
    """

    def run(number: int, stage: Stage) -> None:
        for progress in stage.run():
            if on_step is not None:
                on_step(progress)

    return drive(stages, run)
