"""Shapes for which kernels have code of their own: depthwise planes, many channels on small maps, gates."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sanp.core.errors import SanpError
from sanp.engine.library import Unavailable, native_library
from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Window

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


@pytest.fixture(params=["plain", "avx2", "wide", "avx512"], autouse=True)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANP_ISA", request.param)
    writer = ProgramWriter()
    writer.output(writer.input(1, 2, 2))
    try:
        writer.build()
    except SanpError:
        pytest.skip(f"no {request.param} kernels here")


def some(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def double(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).double()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sides", [(7, 7), (14, 14), (21, 28), (28, 30), (8, 16), (14, 7)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_depthwise_planes_of_every_kind(kernel: int, stride: int, sides: tuple[int, int], threads: int) -> None:
    height, width = (stride * side for side in sides)
    x, residual = some(0, 1, 5, height, width), some(1, 1, 5, *sides)
    weight, bias = some(2, 5, 1, kernel, kernel), some(3, 5)
    writer = ProgramWriter()
    given, added = writer.input(5, height, width), writer.input(5, *sides)
    window = Window(kernel=(kernel,) * 2, stride=(stride,) * 2, padding=(kernel // 2,) * 2)
    writer.output(writer.conv(given, weight, bias, window, groups=5, act=Activation("hardswish")))
    writer.output(writer.conv(given, weight, bias, window, groups=5, act=Activation("relu"), residual=added))
    (plain, joined), _ = writer.build().run([x, residual], threads)
    y = F.conv2d(double(x), double(weight), double(bias), stride, kernel // 2, groups=5)
    np.testing.assert_allclose(plain, F.hardswish(y).numpy(), atol=1e-5 * float(y.abs().max()))
    np.testing.assert_allclose(joined, (y + double(residual)).relu().numpy(), atol=1e-5 * float(y.abs().max()))


@pytest.mark.parametrize("channels, side", [(256, 14), (260, 13), (300, 7)])
def test_many_channels_on_small_maps(channels: int, side: int) -> None:
    x, weight = some(0, 1, channels, side, side), some(1, 60, channels, 3, 3)
    writer = ProgramWriter()
    window = Window(kernel=(3, 3), padding=(1, 1))
    writer.output(writer.conv(writer.input(channels, side, side), weight, np.zeros(60, np.float32), window))
    program = writer.build()
    y = F.conv2d(double(x), double(weight), padding=1).numpy()
    for algorithm in program.algorithms(1):
        program.choose(1, algorithm)
        (found,), _ = program.run([x], 1)
        np.testing.assert_allclose(found, y, atol=3e-5 * np.abs(y).max())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("padding", [(3, 3), (0, 2)])
@pytest.mark.parametrize("channels, height, width", [(3, 224, 224), (3, 65, 40), (1, 31, 70), (20, 60, 57)])
def test_seven_taps_with_stride_two(
    channels: int, height: int, width: int, padding: tuple[int, int], threads: int
) -> None:
    x, weight, bias = some(0, 1, channels, height, width), some(1, 33, channels, 7, 7), some(2, 33)
    window = Window(kernel=(7, 7), stride=(2, 2), padding=padding)
    y = F.conv2d(double(x), double(weight), double(bias), 2, padding)
    writer = ProgramWriter()
    given, added = writer.input(channels, height, width), writer.input(*y.shape[1:])
    writer.output(writer.conv(given, weight, bias, window, act=Activation("relu"), residual=added))
    program = writer.build()
    residual = some(3, *y.shape)
    wanted = (y + double(residual)).relu().numpy()
    assert len(program.algorithms(2)) == 2
    for algorithm in program.algorithms(2):
        program.choose(2, algorithm)
        (found,), _ = program.run([x, residual], threads)
        np.testing.assert_allclose(found, wanted, atol=1e-5 * float(y.abs().max()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("padding", [(1, 1), (0, 0), (1, 0)])
@pytest.mark.parametrize("height, width", [(112, 112), (5, 35), (33, 64), (6, 7), (4, 31)])
def test_the_largest_of_three_by_three_with_stride_two(
    height: int, width: int, padding: tuple[int, int], threads: int
) -> None:
    x = some(0, 2, 3, height, width) - 2  # below zero: nothing may come from outside of the map
    x[1, 2, height // 2, width // 3] = np.nan
    y = F.max_pool2d(torch.from_numpy(x), 3, 2, padding).numpy()
    writer = ProgramWriter()
    window = Window(kernel=(3, 3), stride=(2, 2), padding=padding)
    writer.output(writer.pool(writer.input(3, height, width), window, y.shape[2:]))
    (found,), _ = writer.build().run([x], threads)
    np.testing.assert_array_equal(found, y)


@pytest.mark.parametrize("inputs, hidden, outputs", [(500, 130, 301), (90, 7, 40), (33, 97, 20), (200, 50, 111)])
@pytest.mark.parametrize("threads", [1, 2])
def test_gates_of_every_width(inputs: int, hidden: int, outputs: int, threads: int) -> None:
    x, weight = some(0, 2, inputs, 2, 3), some(1, outputs, inputs, 1, 1)
    first, second = some(2, hidden, inputs) / inputs**0.5, some(3, outputs, hidden) / hidden**0.5
    weights = GateWeights(
        w1=first, b1=some(4, hidden), w2=second, b2=some(5, outputs), threshold=np.zeros(outputs, np.float32)
    )
    writer = ProgramWriter()
    given = writer.input(inputs, 2, 3)
    gate = writer.gate(given, weights)
    writer.output(writer.conv(given, weight, np.zeros(outputs, np.float32), Window(kernel=(1, 1)), gate=gate))
    (found,), _ = writer.build().run([x], threads)
    inside = (double(x).mean((2, 3)) @ double(first).T + double(weights.b1)).relu()
    saliency = inside @ double(second).T + double(weights.b2)
    y = F.conv2d(double(x), double(weight)) * saliency.relu()[:, :, None, None]
    np.testing.assert_allclose(found, y.numpy(), atol=1e-5 * float(y.abs().max()))
