"""A traced convolution by the names of its arguments."""

import torch
from torch import nn

from sanp.tracing.graph import ConvolutionCall
from sanp.tracing.tracer import trace_forward


def test_a_traced_convolution_has_its_arguments_by_name() -> None:
    conv = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
    trace = trace_forward(conv, torch.zeros(1, 4, 5, 5))
    call = ConvolutionCall.of(trace.nodes[0])
    assert call.input == trace.inputs[0]
    assert call.weight is conv.weight
    assert call.bias is conv.bias
    assert (call.stride, call.padding, call.dilation, call.output_padding) == ([2, 2], [1, 1], [1, 1], [1, 1])
    assert call.transposed
    assert call.groups == 2
