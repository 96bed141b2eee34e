"""The paper's first stage (4.1.2) as a line of its own: training the network before it is gated."""

from dataclasses import replace

from torch import nn

from sanp.core.checks import check_is_network
from sanp.core.devices import moved
from sanp.core.errors import SanpError
from sanp.gating.network import GatedNetwork
from sanp.training.config import FitConfig
from sanp.training.history import History
from sanp.training.normless import suited_rates
from sanp.training.stage import Loader, Stages, Watch
from sanp.training.task import Task, TaskLoss, set_dropout
from sanp.training.three_stages import pretrain_stage
from sanp.training.watching import watched


def pretrain(
    net: nn.Module,
    train_loader: Loader,
    *,
    epochs: int | None = None,
    config: FitConfig | None = None,
    loss: TaskLoss | None = None,
    device: str | None = None,
    progress: bool = True,
    on_step: Watch | None = None,
) -> History:
    """Trains a network from where it is, before :func:`sanp.gate`: the first stage of the paper.

    ``net`` is trained in place on the batches of (input, target) that ``train_loader`` gives. ``epochs`` takes the
    place of ``config.pretrain_epochs``; ``config`` has the other settings, such as ``pretrain_lr``. ``loss`` computes
    the loss from output and target; cross entropy if not given. ``device`` moves the network there first: auto,
    cpu, cuda or mps. ``progress`` shows how far training is; ``on_step`` is called with a :class:`Progress` after each
    step. Returns the means of each epoch.
    """
    check_is_network(net)
    if device is not None:
        moved(net, device)
    if isinstance(net, GatedNetwork):
        raise SanpError("the network is gated already: pretrain it before sanp.gate, or train it with sanp.fit")
    config = config or FitConfig()
    config = suited_rates(config if epochs is None else replace(config, pretrain_epochs=epochs), net)
    task = Task(loader=train_loader, budget="100%", config=config, loss=loss)
    set_dropout(net, config.dropout)

    def stages() -> Stages:
        yield pretrain_stage(net, task)
        return net

    return watched(stages(), {"pretrain": config.pretrain_epochs}, progress, on_step)
