"""Folds gates that are the same for every image into the weights, and cuts out the closed channels."""

import copy

import torch
from torch import Tensor, nn

from sanp.core.modules import evaluating
from sanp.gating.network import GatedNetwork
from sanp.gating.pointwise import PointwiseLinear
from sanp.methods.cutting.cut import CUT_TOLERANCE, CutNetwork, cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.groups import ChannelGroups
from sanp.spm.gated_conv import FollowingConv, GatedConv, MovedNorm
from sanp.spm.recording import exact_decisions_of, record


def cut_constant_gates(gated: GatedNetwork, net: nn.Module, example: Tensor) -> CutNetwork | None:
    """The cut network that computes the same as a gated one with constant gates; None if it would save fewer FLOPs.

    ``net`` is the network that was gated, ``example`` an input for it. Where an addition joins two gated branches, a
    channel that is closed in only one of them saves FLOPs in the gated network, but cannot be cut out.
    """
    with evaluating(gated), record(gated) as gates, torch.no_grad():
        wanted = gated(example)
    if not isinstance(wanted, Tensor) or any(":" in name for name in gates):  # a layer that is called twice
        return None
    scales = {name: gate.scale[0] for name, gate in gates.items()}
    plain = ungated(gated, net)
    if plain is None or not all(_fold(gated, plain, name, scale) for name, scale in scales.items()):
        return None
    channel_groups = find_groups(net, example)
    closed = {name: scale == 0 for name, scale in scales.items()}
    smaller = cut(plain, channel_groups, _removed(channel_groups, closed), example, method=gated.origin.method)
    flops = float(gated.cost.per_sample(exact_decisions_of(gates)))
    if float(smaller.cost.per_sample({})) > flops:
        return None
    with evaluating(smaller), torch.no_grad():
        found = smaller(example)
    near = torch.allclose(found, wanted, rtol=0, atol=CUT_TOLERANCE * max(1.0, float(wanted.abs().max())))
    return smaller.train(gated.training) if near else None


def ungated(gated: GatedNetwork, net: nn.Module) -> nn.Module | None:
    """A copy of ``net`` with the weights of the gated network and without gates.

    None if the network's own forward calls the batch norm of a gated layer as a function, or if linear layers of
    ``net`` were written as convolutions.
    """
    if any(isinstance(module, PointwiseLinear) for module in gated.net.modules()):
        return None
    plain = copy.deepcopy(net)
    own = plain.state_dict()
    plain.load_state_dict({key: value for key, value in gated.net.state_dict().items() if key in own}, strict=False)
    paths = norm_paths(gated)
    for layer in gated.net.modules():
        if isinstance(layer, GatedConv | FollowingConv):
            plain.get_submodule(layer.name).load_state_dict(layer.conv.state_dict())
            if layer.norm_outside:
                return None
            if layer.norm is not None:
                plain.get_submodule(paths[id(layer.norm)]).load_state_dict(layer.norm.state_dict())
    return plain


def norm_paths(gated: GatedNetwork) -> dict[int, str]:
    """The path that each batch norm had before it moved inside its convolution, by the identity of the batch norm."""
    moved = {path: module for path, module in gated.net.named_modules() if isinstance(module, MovedNorm)}
    return {id(module._inside[0]): path for path, module in moved.items()}


@torch.no_grad()
def _fold(gated: GatedNetwork, plain: nn.Module, name: str, scale: Tensor) -> bool:
    """Multiplies the outputs of a layer by constants, in its weights; returns whether that is possible."""
    layer = gated.layers[name]
    module = plain.get_submodule(name if layer.norm is None else norm_paths(gated)[id(layer.norm)])
    if not isinstance(module.weight, Tensor):
        return False
    module.weight.mul_(scale.reshape(-1, *(1,) * (module.weight.dim() - 1)))
    if isinstance(module.bias, Tensor):
        module.bias.mul_(scale)
    return True


def _removed(channel_groups: ChannelGroups, closed: dict[str, Tensor]) -> set[int]:
    """The channel groups that are closed in every layer that they are outputs of."""
    removed: set[int] = set()
    kept: set[int] = {0}
    for path, member in channel_groups.convs.items():
        if member.inputs is not None and member.outputs is member.inputs:
            continue  # a depthwise convolution has the channels of its input
        mask = closed.get(path, torch.zeros(len(member.outputs), dtype=torch.bool)).tolist()
        for group, shut in zip(channel_groups.groups_of(member.outputs).tolist(), mask, strict=True):
            (removed if shut else kept).add(group)
    return removed - kept
