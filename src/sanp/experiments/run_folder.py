"""A run folder: the names of its files, whether its run is finished, how to make it and to read it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sanp import data
from sanp.checkpoint import load
from sanp.core import distributed
from sanp.core.errors import SanpError, shown
from sanp.core.files import own_folder, read_text, write_text
from sanp.core.limits import LARGEST_COUNT
from sanp.data.dataset import first_after_shuffle
from sanp.experiments.own_network import NetworkSize, build_for
from sanp.experiments.recipe import Recipe, make_recipe, merge, read_recipe
from sanp.experiments.state import clear_state
from sanp.spm.module import OLDER_SETTINGS

CONFIG, REPORT, MODEL, DENSE = "config.toml", "report.json", "model.safetensors", "dense.safetensors"


REPORT_FORMAT = 1
"""version of report.json; config.toml has that of recipes"""


NUMBERS = ("accuracy", "error", "flops", "dense_flops", "kept", "pruned", "overhead_flops")
"""fields of every report.json that are plain numbers"""


def prepare_folder(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Makes the folder and writes config.toml; with ``resume``, only checks that the folder holds a run."""
    config = folder / CONFIG
    own_folder(folder, "state")
    if resume:
        if not config.is_file():
            raise SanpError(f"{folder} holds no run (no config.toml): give the folder that sanp train made")
        return
    if config.exists():
        raise SanpError(f"{folder} holds a run already: go on with --resume {folder}, or choose another --out")
    clear_state(folder / "state")  # left over from a run whose config.toml was removed
    write_text(config, recipe.as_toml())


def check_sight(folder: Path) -> None:
    """Raises an error if a process does not see the folder; all processes read it when they resume a run."""
    blind = distributed.texts("" if (folder / CONFIG).is_file() else str(distributed.rank()))
    if any(blind):
        raise SanpError(
            f"{folder} is not seen by process {', '.join(filter(None, blind))}: give a folder that all share"
        )


def folder_name(text: str) -> str:
    """A name for a run folder that holds nothing but a name: no path, no parent, no line end, not too long."""
    return re.sub(r"[^\w.%+-]", "-", text)[:200].lstrip(".") or "run"


def is_finished(folder: Path) -> bool:
    """Whether the run in ``folder`` is finished; the pruned network is the last file that a run writes."""
    return (folder / MODEL).is_file()


def read_run(folder: Path) -> Recipe:
    """The recipe of the run in ``folder``."""
    config = folder / CONFIG
    if not config.is_file():
        raise SanpError(f"{folder} is not a run folder (no config.toml): give the folder that sanp train made")
    return make_recipe(merge({"spm": OLDER_SETTINGS}, read_recipe(config)), str(config))


def load_run(folder: Path, dataset: NetworkSize) -> nn.Module:
    """The pruned network of the finished run in ``folder``; ``dataset`` says what it was built for."""
    recipe = read_run(folder)
    if not is_finished(folder):
        raise SanpError(f"{folder} is not finished (no {MODEL}): go on with sanp train --resume {folder}")
    return load(folder / MODEL, build_for(recipe.backbone, dataset))


def load_data(recipe: Recipe, root: Path | None = None) -> data.Dataset:
    """The data set of a recipe; ``root`` is the folder of downloaded data, or None for the usual one.

    Of a recipe that reports on its held-out images, these are also the test images.
    """
    if recipe.validate is None:
        return data.load(recipe.data, root=root, size=recipe.image_size, limit=recipe.limit, resize=recipe.resize)
    # Held out before the limit, so that the same images are held out whatever the limit is.
    dataset = data.hold_out(
        data.load(recipe.data, root=root, size=recipe.image_size, resize=recipe.resize), recipe.validate
    )
    assert dataset.held_out is not None
    test = dataset.held_out if recipe.report_on == "held-out" else dataset.test
    return replace(dataset, train=first_after_shuffle(dataset.train, recipe.limit), test=test)


def evaluation_batches(dataset: data.Dataset, size: int = 250, *, held_out: bool = False) -> data.Batches:
    """The test images in order, or the ``held_out`` ones, in batches of ``size``."""
    images = dataset.held_out if held_out and dataset.held_out is not None else dataset.test
    return data.Batches(images, min(size, len(images)), mean=dataset.mean, std=dataset.std)


def read_report(folder: Path) -> dict[str, Any]:
    """The content of report.json in ``folder``: the fields of Report, and ``dense`` with those of the dense network."""
    path = folder / REPORT
    if not path.is_file():
        raise SanpError(f"{folder} is not finished (no {REPORT}): go on with sanp train --resume {folder}")
    try:
        found = json.loads(read_text(path))
        if (version := found.get("format", REPORT_FORMAT)) != REPORT_FORMAT:
            raise SanpError(
                f"{path} has format {shown(version)}, this sanp reads {REPORT_FORMAT}: use the sanp that wrote it"
            )
        numbers = [found[name] for name in NUMBERS] + [found["dense"][name] for name in ("accuracy", "flops")]
        optional = [part.get("seconds_per_image") or 0.0 for part in (found, found["dense"])]
        if not all(abs(value + 0.0) <= LARGEST_COUNT for value in numbers + optional) or found["dense_flops"] < 1:
            raise ValueError("a value is out of its range")
    except SanpError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise SanpError(f"{path} is damaged ({why}): restore it; sanp eval {folder} needs none of it") from error
    return dict(found)


def write_report(folder: Path, found: dict[str, Any]) -> None:
    """Writes ``found`` to report.json in ``folder``, where :func:`read_report` reads it."""
    write_text(folder / REPORT, json.dumps(found))
