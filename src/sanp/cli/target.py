"""What a command works on: a run folder, the name of a shipped network, or a network of one's own."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from sanp.backbones import BACKBONES
from sanp.checkpoint import NETWORK_KEY, load
from sanp.cli.options import NETWORK_NAMES
from sanp.core.devices import CPU, chosen_device
from sanp.core.errors import SanpError
from sanp.core.files import check_tensor_file
from sanp.core.limits import LARGEST_INPUT
from sanp.experiments.own_network import build_own, is_own
from sanp.experiments.shipped import names, pretrained
from sanp.experiments.weights_file import take_weights


def engine_device(name: str, precision: str = "fp32") -> torch.device:
    """The device of this name for a command that runs networks in the engine, which is for CPUs."""
    device = chosen_device("cpu" if name == "auto" else name)
    if device != CPU and precision != "fp32":
        raise SanpError(f"--precision {precision} is the engine's, on the CPU: leave --device {name} or the other out")
    return device


def build_target(target: str, weights: Path | None, example: Tensor) -> nn.Module:
    """The network that a user named: one of their own, a backbone for images as ``example``, or a shipped one.

    ``weights`` fills it: any safetensors file, or one that sanp.save wrote of a pruned network, which is then pruned.
    """
    if is_own(target):
        net = build_own(target)
    elif target in BACKBONES:
        net = BACKBONES[target](**_for_size(target, example))
    elif target in names():
        net = pretrained(target)
    else:
        known = ", ".join((*BACKBONES, *names()))
        raise SanpError(f"{target} is no run folder and no network: give a folder, {NETWORK_NAMES}, or one of {known}")
    if weights is None:
        return net
    if _is_pruned(weights):
        return load(weights, net)
    take_weights(net, weights)
    return net


def _for_size(name: str, example: Tensor) -> dict[str, object]:
    """The settings of a backbone that depend on the size of the images."""
    stems = hasattr(BACKBONES[name], "stem_for")
    return {"stem": BACKBONES[name].stem_for(example.shape[-1])} if stems else {}  # type: ignore[attr-defined]


def _is_pruned(path: Path) -> bool:
    """Whether sanp.save wrote this file."""
    from safetensors import SafetensorError, safe_open

    try:
        check_tensor_file(path)
        with safe_open(path, framework="pt") as file:
            return NETWORK_KEY in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise SanpError(f"{path} cannot be read as a safetensors file ({error}): give another") from error


def read_input(shape: str) -> Tensor:
    """A random input of a shape that is written as sizes with commas."""
    sizes = shape.split(",")
    if not all(size.strip().isdecimal() and len(size) < 10 and int(size) > 0 for size in sizes):
        raise SanpError(f"input {shape!r} cannot be read: give sizes with commas, as 1,3,224,224")
    if math.prod(int(size) for size in sizes) > LARGEST_INPUT:
        raise SanpError(f"input {shape} has more than {LARGEST_INPUT} numbers: give a smaller one")
    return torch.randn([int(size) for size in sizes])
