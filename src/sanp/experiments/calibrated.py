"""A run's network calibrated for int8 on its training images, once: what was found is kept in the network's file."""

from pathlib import Path

from torch import nn

from sanp.checkpoint import add_calibration
from sanp.core.errors import SanpError, unknown_name
from sanp.core.int8_calibration import kept_calibration
from sanp.engine.compiling import PRECISIONS, compile
from sanp.experiments.budgeted import training_images
from sanp.experiments.run_folder import MODEL, load_data, read_run
from sanp.experiments.shipped import WEIGHTS


def calibrated(network: nn.Module, folder: Path, precision: str) -> nn.Module:
    """Calibrates the network of the run in ``folder`` if int8 is wanted and it was not calibrated before; gives it.

    ``network`` is as its file has it, at its own budget. A file that cannot be written is left as it is.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if precision != "int8" or kept_calibration(network) is not None:
        return network
    images = training_images(load_data(read_run(folder)))()
    compile(network, images[:2], tune=False, precision=precision, calibration=images)
    found = kept_calibration(network)
    if found is not None and folder.resolve().parent != WEIGHTS:
        try:
            add_calibration(folder / MODEL, found)
        except SanpError:
            return network
    return network
