"""Finds linear layers that run over the channels of a map, (N, H, W, C): 1x1 convolutions under another name."""

from collections import Counter

from torch import nn

from sanp.tracing.graph import ModuleCall, Trace


def pointwise_paths(trace: Trace) -> list[str]:
    """The paths of the linear layers that could be written as convolutions.

    Each is called on maps alone, is torch's own class without hooks, and shares its parameters with no other module.
    """
    on_maps: dict[str, bool] = {}
    for call in trace.calls:
        if type(call.module) is nn.Linear:
            on_maps[call.path] = on_maps.get(call.path, True) and _takes_map(trace, call)
    net = trace.calls[0].module
    owners = Counter(id(parameter) for module in net.modules() for parameter in module._parameters.values())
    return [path for path, always in on_maps.items() if always and _is_plain(net.get_submodule(path), owners)]


def _takes_map(trace: Trace, call: ModuleCall) -> bool:
    return len(call.inputs) == 1 and len(trace.shapes[call.inputs[0].index]) == 4


def _is_plain(linear: nn.Module, owners: Counter[int]) -> bool:
    hooks = (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks)
    alone = all(owners[id(parameter)] == 1 for parameter in linear._parameters.values() if parameter is not None)
    return "forward" not in vars(linear) and not any(hooks) and alone
