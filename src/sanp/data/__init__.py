"""Data sets as uint8 images, and the batches to train on; knows nothing of pruning; imports core."""

from sanp.data.augment import Augment
from sanp.data.batches import Batches
from sanp.data.catalog import DATASETS, IMAGEFOLDER, Entry, data_folder, describe, get, load
from sanp.data.dataset import Dataset
from sanp.data.held_out import hold_out
from sanp.data.imagefolder import FileSplit
from sanp.data.repeated import Repeated
from sanp.data.split import Examples, Split

__all__ = [
    "DATASETS",
    "IMAGEFOLDER",
    "Augment",
    "Batches",
    "Dataset",
    "Entry",
    "Examples",
    "FileSplit",
    "Repeated",
    "Split",
    "data_folder",
    "describe",
    "get",
    "hold_out",
    "load",
]
