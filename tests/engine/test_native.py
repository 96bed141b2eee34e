"""The native library against double precision: random programs on every instruction set, and what it refuses."""

import ctypes
from pathlib import Path

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
from sanp.engine.native_program import NativeProgram
from tests.tools.engine_cases import random_case, run_case, wrong_cases

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)

ISAS = ("plain", "avx2", "wide", "avx512")


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SANP_ISA", request.param)
    try:
        small_program()
    except SanpError:
        pytest.skip(f"no {request.param} kernels here")
    return str(request.param)


def small_program(channels: int = 2) -> NativeProgram:
    writer = ProgramWriter()
    x = writer.input(channels, 4, 4)
    weight = np.ones((1, channels, 3, 3), np.float32)
    writer.output(writer.conv(x, weight, np.zeros(1, np.float32), Window(kernel=(3, 3), padding=(1, 1))))
    return writer.build()


@pytest.mark.parametrize("part", range(4))
def test_two_thousand_random_programs_agree_with_double_precision(part: int) -> None:
    assert wrong_cases(range(part * 500, part * 500 + 500)) == []


@pytest.mark.parametrize("kernel, padding", [(14, 0), (13, 1), (15, 2), (17, 3), (14, 1), (27, 3), (3, 10), (5, 12)])
def test_windows_of_any_width_are_what_torch_computes(isa: str, kernel: int, padding: int) -> None:
    writer, image = ProgramWriter(), torch.randn(2, 3, 30, 31, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(4, 3, kernel, kernel, generator=torch.Generator().manual_seed(1))
    window = Window(kernel=(kernel, kernel), padding=(padding, padding))
    x = writer.input(3, 30, 31)
    writer.output(writer.conv(x, weight.numpy(), np.zeros(4, np.float32), window))
    size = window.out((30, 31))
    writer.output(writer.pool(x, window, size, np.full(size, 1 / kernel**2, np.float32)))
    (y, mean), _ = writer.build().run([image.numpy()], 1)
    wanted = F.conv2d(image.double(), weight.double(), padding=padding).numpy()
    assert np.abs(y - wanted).max() < 2e-5 * np.abs(wanted).max()
    around = F.pad(image.double(), (padding,) * 4)
    assert np.abs(mean - F.avg_pool2d(around, kernel, 1).numpy()).max() < 2e-5


def test_a_program_that_differs_from_its_twin_is_told() -> None:
    other_input, other_twin = random_case(2), random_case(2)
    other_input.inputs = other_input.inputs + np.float32(0.001)
    number, value, live = other_twin.values[-1]
    other_twin.values[-1] = (number, value + 3e-5 * other_twin.largest, live)
    assert [run_case(case).right for case in (random_case(2), other_input, other_twin)] == [True, False, False]


def test_random_programs_agree_on_every_instruction_set(isa: str) -> None:
    assert wrong_cases(range(10_000, 10_200)) == []
    assert small_program().instruction_set == isa


def test_a_convolution_of_ones_counts_its_neighbours() -> None:
    program = small_program()
    for algorithm in program.algorithms(1):
        program.choose(1, algorithm)
        (y,), _ = program.run([np.ones((1, 2, 4, 4), np.float32)], 1)
        edge, inner = [8, 12, 12, 8], [12, 18, 18, 12]
        np.testing.assert_allclose(y[0, 0], [edge, inner, inner, edge], rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("follows", [True, False])
def test_a_gated_expansion_and_the_depthwise_convolution_after_it(threads: int, follows: bool) -> None:
    noise = np.random.default_rng(threads)
    x = noise.standard_normal((2, 5, 64, 64)).astype(np.float32)
    expand, bias = (noise.standard_normal(shape).astype(np.float32) for shape in ((72, 5, 1, 1), (72,)))
    taps, shift = (noise.standard_normal(shape).astype(np.float32) for shape in ((72, 1, 3, 3), (72,)))
    saliency = np.where(noise.random(72) < 0.6, 1, -1).astype(np.float32)
    nothing = np.zeros((0,), np.float32)
    weights = GateWeights(
        w1=nothing.reshape(0, 5), b1=nothing, w2=nothing.reshape(72, 0), b2=saliency, threshold=0 * saliency
    )
    writer = ProgramWriter()
    given = writer.input(5, 64, 64)
    relu6 = Activation("clip", 0.0, 6.0)
    wide = writer.conv(given, expand, bias, Window(kernel=(1, 1)), act=relu6, gate=writer.gate(given, weights))
    window = Window(kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    made = writer.conv(wide, taps, shift, window, groups=72, act=relu6, follows=follows)
    writer.output(made)
    (found,), _ = writer.build().run([x], threads)
    tensors = [torch.from_numpy(array).double() for array in (x, expand, bias, taps, shift, saliency.clip(0))]
    images, expand_, bias_, taps_, shift_, open_ = tensors
    between = (F.conv2d(images, expand_, bias_) * open_[:, None, None]).clamp(0, 6)
    expected = F.conv2d(between, taps_, shift_, stride=2, padding=1, groups=72).clamp(0, 6)
    expected = expected * open_[:, None, None] if follows else expected
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_samples_with_nan_or_infinity_are_told_apart() -> None:
    x = np.zeros((4, 2, 4, 4), np.float32)
    x[1, 0, 2, 2], x[3, 1, 0, 0] = np.nan, -np.inf
    _, finite = small_program().run([x], 2)
    assert finite.tolist() == [True, False, True, False]


def test_an_overflow_on_the_way_is_told() -> None:
    x = np.full((1, 2, 4, 4), 3e38, np.float32)
    _, finite = small_program().run([x], 1)
    assert not finite[0]


def test_an_unknown_instruction_set_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANP_ISA", "mmx")
    with pytest.raises(SanpError, match=r"SANP_ISA is mmx: choose one of .*plain"):
        small_program()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([], "ends in the middle"),
        ([1, 3, 4, 4], "no input or no output"),
        ([1, 0, 4, 4], "a number of channels is 0"),
        ([1, 3, 4, 4, 99], "does not exist"),
        ([1, 3, 4, 4, 2, 0], "read before it is written"),
        ([1, 3, 4, 4, 1, 0, 1, 0], "written twice"),
        ([1, 3, 4, 4, 1, 5], "a value is 5"),
        ([2, 1, 8, 8, 1, 4, 4, 1, 0, 3, 0, -1, 1, 3, 3, 1, 1, 0, 0, 1, 1], "does not give the size"),
        ([2, 1, 4, 4, 1, 2, 2, 1, 0, 3, 0, -1, 1, 3, 3, 1, 1, 0, 0, 1, 1, 1, -1, 0, 0, 0, 0, 0], "outside the data"),
        ([2, 2, 1 << 20, 1 << 20, 2, 1, 1], "elements"),
    ],
)
def test_a_program_that_is_not_sound_is_refused(code: list[int], message: str) -> None:
    with pytest.raises(SanpError, match=message):
        NativeProgram(code, [np.zeros(2, np.float32)], [], [])


def test_random_numbers_as_a_program_never_crash() -> None:
    dice = np.random.default_rng(0)
    small = [np.zeros(40, np.float32), np.zeros(24, np.float32)]
    sound = ProgramWriter()
    x = sound.input(2, 5, 5)
    weight, bias = np.ones((3, 2, 3, 3), np.float32), np.ones(3, np.float32)
    sound.output(sound.conv(x, weight, bias, Window(kernel=(3, 3)), act=Activation("relu")))
    good, _ = sound.encoded()
    refused = 0
    for _ in range(3000):
        code = list(good)
        for _ in range(dice.integers(1, 4)):
            code[dice.integers(len(code))] = int(dice.integers(-3, 40))
        try:
            NativeProgram(code, small, [], [])
        except SanpError:
            refused += 1
    assert refused > 1000


def test_memory_is_given_back() -> None:
    def resident() -> int:
        fields = Path("/proc/self/statm").read_text().split() if Path("/proc/self/statm").exists() else ["0", "0"]
        return int(fields[1]) * 4096

    weight = np.ones((128, 128, 3, 3), np.float32)
    x = np.ones((4, 128, 16, 16), np.float32)

    def use() -> None:
        writer = ProgramWriter()
        value = writer.conv(writer.input(128, 16, 16), weight, weight[:, 0, 0, 0], Window(kernel=(3, 3)))
        writer.output(value)
        writer.build().run([x], 2)

    for _ in range(3):
        use()
    before = resident()
    for _ in range(20):
        use()
    assert resident() - before < 20_000_000  # one program takes 4 MB of weights and as much of workspace


def test_the_library_exports_plain_c_names() -> None:
    assert isinstance(native_library(), ctypes.CDLL)
    assert native_library().sanp_operators is not None
