"""Where a run stands: network, optimizers, controller and random numbers, so that going on gives the same bits.

``state/now.safetensors`` is the running stage; ``state/end-K.safetensors`` the network and the random numbers at the
end of stage K, from which the method's changes between stages follow again.
"""

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sanp.checkpoint import write_atomically
from sanp.errors import SanpError
from sanp.stages import Stage

KEY = "sanp-state"


@dataclass(frozen=True)
class Position:
    """How far a run has come: the stage it is in, and the state of its log."""

    stage: int
    log: dict[str, Any]


class Saved:
    """The state files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._now = folder / "now.safetensors"
        self._header: dict[str, Any] = {}
        self._tensors: dict[str, Tensor] = {}
        if self._now.exists():
            self._header, self._tensors = _read(self._now)

    def position(self) -> Position:
        """Where to go on; the start if nothing is saved."""
        return Position(self._header.get("stage", 0), self._header.get("log", {}))

    def write(self, stage: Stage, position: Position) -> None:
        """Saves the stage as it stands between two steps."""
        tensors = _network(stage)
        optimizers = []
        for number, tuned in enumerate(stage.optimizers):
            state = tuned.optimizer.state_dict()
            for index, values in state["state"].items():
                for name, value in values.items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer.{number}.{index}.{name}"] = value
            optimizers.append([{**group, "params": list(group["params"])} for group in state["param_groups"]])
        header = {
            "stage": position.stage,
            "log": position.log,
            "step": stage.step,
            "optimizers": optimizers,
            "also": None if stage.also is None else stage.also.state(),
        }
        _write(self._now, tensors, header)

    def write_end(self, stage: Stage, number: int) -> None:
        """Saves what the next stages start from."""
        _write(self.folder / f"end-{number}.safetensors", _network(stage), {})

    def load_end(self, stage: Stage, number: int) -> None:
        """Puts the network and the random numbers where a finished stage left them."""
        _, tensors = _read(self.folder / f"end-{number}.safetensors")
        _fill_network(stage, tensors)

    def restore(self, stage: Stage) -> None:
        """Puts a stage where it was saved; does nothing for a run that starts."""
        if not self._header:
            return
        _fill_network(stage, self._tensors)
        for number, (tuned, groups) in enumerate(zip(stage.optimizers, self._header["optimizers"], strict=True)):
            parameters = [each for group in tuned.optimizer.param_groups for each in group["params"]]
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in self._tensors.items():
                if key.startswith(f"optimizer.{number}."):
                    _, _, index, name = key.split(".", 3)
                    state.setdefault(int(index), {})[name] = _laid_out_like(parameters[int(index)], tensor)
            tuned.optimizer.load_state_dict({"state": state, "param_groups": groups})
        stage.step = self._header["step"]
        if stage.also is not None:
            stage.also.restore(self._header["also"])

    def clear(self) -> None:
        """Removes the files of a run that is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Interrupted:
    """Notes Ctrl-C and SIGTERM instead of dying of them, so that a step can be finished and saved."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupted":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread: whoever runs us handles signals
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # asked twice: do not wait for the step
            raise KeyboardInterrupt
        self.asked = True


def _network(stage: Stage) -> dict[str, Tensor]:
    """The network's tensors, each once, and the random numbers' state."""
    tensors = {f"net.{name}": tensor for name, tensor in stage.net.state_dict().items()}
    return {**tensors, "random": torch.get_rng_state()}


def _fill_network(stage: Stage, tensors: dict[str, Tensor]) -> None:
    own = {name.removeprefix("net."): tensor for name, tensor in tensors.items() if name.startswith("net.")}
    try:
        stage.net.load_state_dict(own)
        torch.set_rng_state(tensors["random"])
    except (RuntimeError, KeyError) as error:
        raise SanpError(f"the saved state does not fit this run's network ({error}): start the run anew") from error


def _laid_out_like(parameter: Tensor, saved: Tensor) -> Tensor:
    """A buffer in its parameter's memory format: files keep numbers, not strides."""
    return torch.empty_like(parameter).copy_(saved) if saved.shape == parameter.shape and saved.dim() else saved


def _write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    whole = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    write_atomically(path, lambda temporary: save_file(whole, temporary, {KEY: json.dumps(header)}))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[KEY])
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise SanpError(f"{path} is damaged ({error}): start the run anew") from error
