"""Saves the state of a run (network, optimizers, controller, random generator), so that it resumes bit for bit.

``state/now.safetensors`` holds the running stage. ``state/end-K.safetensors`` holds the network and the random
generator at the end of stage K; from it the method's changes between stages are repeated.
"""

import contextlib
import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sanp.core.checks import is_finite, is_kind
from sanp.core.errors import SanpError, shown
from sanp.core.files import read_tensor_file, write_atomically
from sanp.core.limits import LARGEST_COUNT, LARGEST_NUMBER
from sanp.training.stage import Stage

STATE_KEY = "sanp-state"
STATE_FORMAT = 1
_DAMAGE = (RuntimeError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""errors that damaged values can cause"""


@dataclass(frozen=True)
class Position:
    """How far a run has come."""

    stage: int
    """number of the stage that it is in, from 0"""
    log: dict[str, Any]
    """state of its ProgressLog"""


class Saved:
    """The state files of one run, in the folder ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = folder / "now.safetensors"
        self._header: dict[str, Any] = {}
        self._tensors: dict[str, Tensor] = {}
        if self.now.exists():
            self._header, self._tensors = _read(self.now)

    def position(self) -> Position:
        """The saved position of the run; its start if nothing is saved."""
        stage, log = self._header.get("stage", 0), self._header.get("log", {})
        if not isinstance(stage, int) or isinstance(stage, bool) or stage < 0 or not isinstance(log, dict):
            raise _damaged(self.now, f"stage is {shown(stage)}")
        return Position(stage, log)

    def write(self, stage: Stage, position: Position) -> None:
        """Saves the running stage between two steps; ``position`` says which stage it is."""
        tensors = _network(stage)
        for number, scheduled in enumerate(stage.optimizers):
            for index, values in scheduled.optimizer.state_dict()["state"].items():
                for name, value in values.items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer.{number}.{index}.{name}"] = value
        header = {
            "stage": position.stage,
            "log": position.log,
            "step": stage.step,
            "also": None if stage.also is None else stage.also.state(),
        }
        _write(self.now, tensors, header)

    def write_end(self, stage: Stage, number: int) -> None:
        """Saves the network and the random generator at the end of stage ``number``."""
        _write(self.folder / f"end-{number}.safetensors", _network(stage), {})

    def load_end(self, stage: Stage, number: int) -> None:
        """Restores the network and the random generator as they were at the end of stage ``number``."""
        _, tensors = _read(self.folder / f"end-{number}.safetensors")
        _fill_network(stage, tensors)

    def restore(self, stage: Stage) -> None:
        """Restores a stage as it was saved; does nothing if nothing is saved.

        Settings such as learning rates are not restored, so that the config may be changed before resuming.
        """
        if not self._header:
            return
        _fill_network(stage, self._tensors)
        try:
            for number, scheduled in enumerate(stage.optimizers):
                scheduled.optimizer.load_state_dict(self._optimizer(number, scheduled.optimizer))
            step = self._header["step"]
            if not isinstance(step, int) or not 0 <= step <= stage.steps:
                raise ValueError(f"step is {shown(step)} of {stage.steps}")
            stage.step = step
            if stage.also is not None:
                stage.also.restore(_like(stage.also.state(), self._header["also"]))
        except _DAMAGE as error:
            raise _damaged(self.now, error) from error

    def _optimizer(self, number: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of optimizer ``number``: the saved buffers with its present settings."""
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self._tensors.items():
            if key.startswith(f"optimizer.{number}."):
                _, _, index, name = key.split(".", 3)
                state.setdefault(int(index), {})[name] = _laid_out_like(parameters[int(index)], tensor)
        if len({frozenset(values) for values in state.values()}) > 1:
            raise ValueError("a buffer of an optimizer is missing")
        return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}

    def clear(self) -> None:
        """Removes all state files; called when the run is finished."""
        clear_state(self.folder)


def clear_state(folder: Path) -> None:
    """Removes the state files in a folder, those too that a killed process left half written, and the empty folder.

    What else lies there is not a run's, and stays.
    """
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _STATE_FILE.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


_STATE_FILE = re.compile(r"(now|end-\d+)\.safetensors|\.(now|end-\d+)\.safetensors\.[0-9a-f]{8}")
"""names of state files, and of the temporary files that they are written to first"""


class Interrupted:
    """Inside, Ctrl-C and SIGTERM only set ``asked``, so that the step can be finished and saved first."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupted":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread; then the caller has to handle signals
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second time it does not wait for the step
            raise KeyboardInterrupt
        self.asked = True


def _network(stage: Stage) -> dict[str, Tensor]:
    """The tensors of the network, and the state of the random generator."""
    tensors = {f"net.{name}": tensor for name, tensor in stage.net.state_dict().items()}
    return {**tensors, "random": torch.get_rng_state()}


def _fill_network(stage: Stage, tensors: dict[str, Tensor]) -> None:
    saved = {name.removeprefix("net."): tensor for name, tensor in tensors.items() if name.startswith("net.")}
    own = stage.net.state_dict()
    try:
        for name, tensor in saved.items():
            if name in own and own[name].dtype != tensor.dtype:
                raise ValueError(f"{name} is {tensor.dtype}, not {own[name].dtype}")
        stage.net.load_state_dict(saved)
        torch.set_rng_state(tensors["random"])
    except _DAMAGE as error:
        raise SanpError(f"the saved state does not fit this run's network ({error}): start the run anew") from error


def _laid_out_like(parameter: Tensor, saved: Tensor) -> Tensor:
    """A saved buffer in the memory format of its parameter, which files do not keep."""
    if not saved.dim():  # a count of steps
        if not 0 <= float(saved) <= LARGEST_COUNT:
            raise ValueError(f"an optimizer has done {float(saved)} steps")
        return saved.clone()  # the optimizer keeps it as it is, and what safe_open gives changes with its file
    if saved.shape != parameter.shape or saved.dtype != parameter.dtype:
        raise ValueError(f"a buffer is {saved.dtype} {tuple(saved.shape)}, its parameter {tuple(parameter.shape)}")
    return torch.empty_like(parameter).copy_(saved)


def _like(own: dict[str, Any], saved: Any) -> dict[str, Any]:
    """The saved state; an error if its names or types are not those of the present state ``own``."""
    if not isinstance(saved, dict) or saved.keys() != own.keys():
        raise ValueError(f"wanted {', '.join(own)}")
    for name, value in saved.items():
        number = is_kind(value, float) and is_finite(value) and abs(value) <= LARGEST_NUMBER
        if isinstance(own[name], int | float | None) and not (number or value is None):
            raise ValueError(f"{name} is {shown(value)}")
    return saved


def _write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    whole = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    written = json.dumps({"format": STATE_FORMAT, **header, "tensors": sorted(whole)})
    write_atomically(path, lambda temporary: save_file(whole, temporary, {STATE_KEY: written}))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        metadata, tensors = read_tensor_file(path)
        header = json.loads(metadata[STATE_KEY])
        version, names = header["format"], header["tensors"]
    except (SafetensorError, OSError, RecursionError, *_DAMAGE) as error:
        raise _damaged(path, error) from error
    if version != STATE_FORMAT:
        raise SanpError(
            f"{path} has format {shown(version)}, this sanp reads {STATE_FORMAT}: go on with the sanp that wrote it"
        )
    if names != sorted(tensors):
        raise _damaged(path, "tensors are missing")
    return header, tensors


def _damaged(path: Path, why: object) -> SanpError:
    return SanpError(f"{path} is damaged ({why}): start the run anew")
