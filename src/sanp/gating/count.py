"""Counts the FLOPs of any network: by its own cost model, or from one traced forward if it has no gates."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core.errors import SanpError
from sanp.core.modules import placed_for, tensors_in
from sanp.gating.accounting import Accounted, Accounting, FixedCost
from sanp.gating.cost import CostModel
from sanp.gating.sites import find_sites
from sanp.tracing.graph import ConvolutionCall, Trace, Value
from sanp.tracing.topology import build_topology
from sanp.tracing.tracer import trace_forward


def ungated_cost(net: nn.Module, example_input: Any) -> CostModel:
    """The cost model of a network as it is, without gates; ``example_input`` is what its forward takes."""
    trace, _ = trace_batch(net, example_input)
    return CostModel(build_topology(trace, find_sites(trace, set(), shortcuts=True).names, {}))


def cost_of(net: nn.Module, example_input: Any) -> Accounting:
    """What counts the FLOPs of a network's forwards: its own count, or a fixed one if it has no gates.

    ``example_input`` is what the forward of a network without a count of its own takes.
    """
    cost = net.cost if isinstance(net, Accounted) else ungated_cost(net, example_input)
    return FixedCost(cost, {}, {}) if isinstance(cost, CostModel) and not cost.gates else cost


def trace_batch(net: nn.Module, example: Any) -> tuple[Trace, Any]:
    """A trace of ``net``, and the example input that it was traced with.

    An example of one sample is doubled, since only with two samples the trace shows where samples are mixed. A network
    that splits its batch into single samples is traced with one sample. The example is moved to the network's device.
    """
    example = placed_for(net, example)
    first = next(iter(tensors_in(example)), None)
    if first is not None and first.numel() == 0:
        raise SanpError(f"the example_input of shape {tuple(first.shape)} is empty: give at least one sample")
    if first is not None and first.dim() > 1 and len(first) == 1:
        twice = tree_map(
            lambda leaf: (
                torch.cat((leaf, leaf)) if isinstance(leaf, Tensor) and leaf.dim() > 1 and len(leaf) == 1 else leaf
            ),
            example,
        )
        try:
            trace = trace_forward(net, twice)
            if not _one_by_one(trace):
                return trace, twice
        except SanpError:
            pass  # the network takes only one sample at a time
    trace = trace_forward(net, example)
    if first is not None and _one_by_one(trace):
        count = len(first)
        single = tree_map(
            lambda leaf: leaf[:1] if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == count else leaf, example
        )
        return trace_forward(net, single), single
    return trace, example


def _one_by_one(trace: Trace) -> bool:
    """Whether the first convolution reads one sample of several."""
    read = (ConvolutionCall.of(node).input for node in trace.nodes if node.op == "convolution")
    first = next((value for value in read if isinstance(value, Value)), None)
    shape = trace.shapes[trace.inputs[0].index]
    return first is not None and len(shape) > 1 and shape[0] > 1 == trace.shapes[first.index][0]
