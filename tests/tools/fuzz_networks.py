"""Files of networks for the fuzzer."""

import copy
from pathlib import Path

import torch
from torch import Tensor

import sanp
from sanp.checkpoint import load, save
from sanp.core.int8_calibration import Int8Calibration, keep_calibration
from sanp.experiments.weights_file import take_weights
from sanp.gating.dial import Dial
from sanp.gating.network import GatedNetwork
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.methods.cutting.cut import cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.methods.weight import SparseNetwork
from tests.tools import mutate, tiny_run
from tests.tools.fuzz_target import Target

EXAMPLE = torch.zeros(1, 3, 8, 8)


def networks(folder: Path) -> list[Target]:
    """Networks plain, gated, with a dial, calibrated, packed, capped, cut, sparse, by pixel; weights of anybody."""
    net = tiny_run.Tiny()
    path = folder / "net.safetensors"

    def read() -> Tensor:
        network = load(path, net)
        if isinstance(network, GatedNetwork) and network.dial is not None:
            network.set_budget((network.dial.low + network.dial.high) / 2, force=True)
        y: Tensor = network.eval()(torch.zeros(2, 3, 8, 8))
        return y

    def target(name: str, networks: list[torch.nn.Module]) -> Target:
        whole = []
        for network in networks:
            save(network, path)
            whole.append(path.read_bytes())
        return Target(name, whole, path, read, [mutate.in_bytes, mutate.in_safetensors, mutate.in_safetensors])

    gated = sanp.gate(net, EXAMPLE)
    gated.set_budget("60%", torch.randn(16, 3, 8, 8))
    weights = folder / "weights.safetensors"
    save(net, path)
    others = Target(
        "weights",
        [path.read_bytes()],
        weights,
        lambda: take_weights(tiny_run.Tiny(), weights),
        [mutate.in_bytes, mutate.in_safetensors],
    )
    return [target("network", [net, gated, gated, *_rich(gated)]), target("form", _forms(net)), others]


def _rich(gated: GatedNetwork) -> list[torch.nn.Module]:
    """The gated network with a dial and a calibration for int8, with rows of zeros that a file leaves out, capped."""
    rich, packed, capped = (copy.deepcopy(gated) for _ in range(3))
    capped.set_max_flops("80%")
    rich.dial = Dial((0.3, 0.5, 0.7), (0.9, 0.4, -0.1))
    rich.trained = TrainedBudgets(0.3, 0.7)
    keep_calibration(rich, Int8Calibration({"x": (-1.0, 2.0), "y": (0.0, 3.0)}, {"features.0": 0.01}, ("features.3",)))
    with torch.no_grad():
        next(packed.net.parameters())[:4] = 0
    return [rich, rich, packed, packed, capped]


def _forms(net: torch.nn.Module) -> list[torch.nn.Module]:
    """The network pruned but not gated: cut, sparse, gated by pixel."""
    channel_groups = find_groups(net, EXAMPLE)
    first = channel_groups.members["features.0"].outputs
    assert first is not None
    smaller = cut(net, channel_groups, set(channel_groups.groups_of(first)[:3].tolist()), EXAMPLE, method="l1")
    sparse = SparseNetwork(copy.deepcopy(net), EXAMPLE)
    sparse.drop(0.5)
    return [smaller, smaller, sparse, PixelGatedNetwork(copy.deepcopy(net), EXAMPLE, 4)]
