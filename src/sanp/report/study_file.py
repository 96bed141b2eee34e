"""The study that is kept in a run folder, so that the next report needs no data."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.core.files import check_tensor_file, write_atomically
from sanp.core.limits import LARGEST_COUNT, LARGEST_STUDY, LONGEST_LABEL, MOST_CLASSES, MOST_LAYERS
from sanp.experiments import run_folder
from sanp.experiments.inputs import inputs_of, keep_inputs
from sanp.report.saved_report import are_counts
from sanp.report.study import LARGEST_PICTURE, Study, make_study

STUDY_FILE = "study.safetensors"
STUDY_FORMAT = "1"


def study_of(folder: Path, device: torch.device = CPU) -> Study:
    """The study kept in a run folder if it is of this network, or else a new one, made on ``device`` and kept there."""
    model = folder / run_folder.MODEL
    if not run_folder.is_finished(folder):
        raise SanpError(f"{folder} is not finished (no model.safetensors): go on with sanp train --resume {folder}")
    check_tensor_file(model)
    with model.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    found = _read(folder / STUDY_FILE, checksum)
    if found is None:
        dataset = run_folder.load_data(run_folder.read_run(folder))
        found = make_study(folder, dataset, device)
        keep_inputs(folder, inputs_of(dataset))
        _write(found, folder / STUDY_FILE, checksum)
    return found


def _write(study: Study, path: Path, checksum: str) -> None:
    """Writes a study; a folder that cannot be written to only means that it is made again next time."""
    arrays = {
        name: np.ascontiguousarray(getattr(study, name))
        for name in ("labels", "answers", "confidence", "flops", "shown", "pictures")
    }
    arrays |= {f"open/{name}": np.ascontiguousarray(shares) for name, shares in study.open.items()}
    header = {"format": STUDY_FORMAT, "model": checksum, "classes": json.dumps(study.classes)}
    try:
        write_atomically(path, lambda temporary: save_file(arrays, temporary, header))
    except SanpError:
        return


def _read(path: Path, checksum: str) -> Study | None:
    """The study in a file; None if it is of another network or damaged, since it can be made again."""
    try:
        check_tensor_file(path, LARGEST_STUDY)
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != STUDY_FORMAT or header.get("model") != checksum:
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        layers = {name.partition("/")[2]: arrays.pop(name) for name in list(arrays) if name.startswith("open/")}
        found = Study(classes=tuple(map(str, json.loads(header["classes"]))), open=layers, **arrays)
        return found if _is_whole(found) else None
    except (SanpError, SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_whole(study: Study) -> bool:
    """Whether the parts of a study are of the kinds and sizes that belong together, and their values possible."""
    classes, images, shown = len(study.classes), len(study.labels), len(study.shown)
    sides = study.pictures.shape[1:]
    return (
        classes <= MOST_CLASSES
        and all(len(name) <= LONGEST_LABEL for name in (*study.classes, *study.open))
        and len(study.open) <= MOST_LAYERS
        and all(_within(numbers, np.integer, (images,), classes - 1) for numbers in (study.labels, study.answers))
        and _within(study.confidence, np.floating, (images,), 1 + 1e-6)
        and _within(study.flops, np.floating, (images,), LARGEST_COUNT)
        and are_counts(study.flops)
        and all(_within(each, np.floating, (classes, each.shape[-1]), 1 + 1e-6) for each in study.open.values())
        and _within(study.shown, np.integer, (shown,), images - 1)
        and study.pictures.dtype == np.uint8
        and study.pictures.shape[:1] == (shown,)
        and len(sides) == 3
        and sides[0] in (1, 3)
        and 0 < min(sides) <= max(sides) <= LARGEST_PICTURE
    )


def _within(values: npt.NDArray[Any], kind: Any, shape: tuple[int, ...], most: float) -> bool:
    """Whether an array is of this kind and shape, not empty, and all its numbers lie from 0 to ``most``."""
    fits = values.shape == shape and values.size > 0 and np.issubdtype(values.dtype, kind)
    return bool(fits and values.min() >= 0 and values.max() <= most)  # NaN is neither
