"""The int8 kernels against whole numbers: random programs on every instruction set, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sanp.core.errors import SanpError
from sanp.engine.library import Unavailable, native_library
from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.byte_operators import ByteConv, ByteMean, Dequantise, Quantise
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.operators import Conv, Operator
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Window
from sanp.engine.native_program import NativeProgram
from tests.tools.byte_cases import ByteCase, wrong, wrong_byte_cases

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


@pytest.mark.parametrize("part", range(4))
def test_random_programs_agree_with_whole_numbers(part: int) -> None:
    assert wrong_byte_cases(range(part * 500, part * 500 + 500)) == []


@pytest.fixture(params=["plain", "avx2", "vnni", "vnni_vbmi"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SANP_ISA", request.param)
    try:
        ByteCase(0).run()
    except SanpError:
        pytest.skip(f"no {request.param} kernels here")
    return str(request.param)


def test_random_programs_agree_on_every_instruction_set(isa: str) -> None:
    assert wrong_byte_cases(range(10_000, 10_150)) == []


FLOATS_BESIDE = {"vnni": "avx512", "vnni_vbmi": "avx512"}
"""kernels for bytes that run beside kernels for floats of another name"""


def test_a_name_chooses_the_kernels_for_bytes_and_what_they_run_beside(isa: str) -> None:
    program = one_conv({}).build()
    assert (program.int8_instruction_set, program.instruction_set) == (isa, FLOATS_BESIDE.get(isa, isa))


CLOSED = {
    "none": lambda c: c < 0,
    "the first": lambda c: c == 0,
    "the last": lambda c: c == c[-1],
    "all but the last": lambda c: c < c[-1],
    "all but the first": lambda c: c > 0,
    "a line": lambda c: c < 64,
    "sixteen": lambda c: (c >= 16) & (c < 32),
    "two in three": lambda c: c % 3 > 0,
    "two in three, without order": lambda c: np.random.default_rng(1).random(len(c)) > 1 / 3,
    "all": lambda c: c >= 0,
}
"""which inputs are not live, by number; weights are gathered in lines of 64, or in parts of sixteen"""


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(("kernel", "size"), [(1, 9), (3, 9), (3, 4)])  # the last has its channels as lanes
@pytest.mark.parametrize("zero", [0, 100])
def test_weights_of_any_set_of_live_inputs_are_found(isa: str, closed: str, kernel: int, size: int, zero: int) -> None:
    dice = np.random.default_rng(0)
    for channels in (1, 63, 64, 65, 128, 200):
        live = ~CLOSED[closed](np.arange(channels))
        x = dice.integers(-zero, 256 - zero, (1, channels, size, size)).astype(np.float32)
        weight = dice.integers(-127, 128, (5, channels, kernel, kernel)).astype(np.float32)
        conv = conv_behind_gate(weight, size, zero)
        made = np.empty((1, 5, size, size), np.float32)
        decided = np.ascontiguousarray(live[None], np.uint8)
        conv.run_at([x.ctypes.data], [made.ctypes.data], 1, 1, forced=decided.ctypes.data)
        kept = torch.from_numpy(x * live[:, None, None]).double()
        sums = F.conv2d(kept, torch.from_numpy(weight).double(), padding=kernel // 2)
        assert np.array_equal(made, sums.float().numpy()), channels


def conv_behind_gate(weight: np.ndarray, size: int, zero: int) -> NativeProgram:  # type: ignore[type-arg]
    """The sums of a convolution of bytes whose inputs pass a gate, and are themselves otherwise."""
    outputs, channels = weight.shape[:2]
    one, writer = np.ones(1, np.float32), ProgramWriter()
    x = writer.input(channels, size, size)
    here = (channels, size, size)
    writer.shapes += [here, (channels, 1, 1), here, (outputs, size, size)]
    writer.operators += [Quantise(x=x, out=1, scale=one, zero=zero), ByteMean(x=1, out=2, scale=one, zero=zero)]
    gate = writer.gate(2, open_gate(channels))
    shared: dict[str, Any] = {
        "residual": -1, "follows": False, "scale_after": False, "act": IDENTITY, "zero": zero, "scale": one,
        "residual_scale": one, "residual_zero": 0,
    }  # fmt: skip
    writer.operators += [
        ByteConv(
            x=1, to_bytes=True, out=3, window=Window(kernel=(1, 1)), groups=channels, gate=gate, out_zero=zero,
            weight=np.ones((channels, 1, 1, 1), np.float32), multiplier=np.ones(channels, np.float32),
            bias=np.zeros(channels, np.float32), **shared,
        ),
        ByteConv(
            x=3, to_bytes=False, out=4, window=Window(kernel=weight.shape[2:], padding=(weight.shape[2] // 2,) * 2),
            groups=1, gate=-1, out_zero=0, weight=weight, multiplier=np.ones(outputs, np.float32),
            bias=np.zeros(outputs, np.float32), **shared,
        ),
    ]  # fmt: skip
    writer.output(4)
    return writer.build()


def open_gate(channels: int) -> GateWeights:
    """A gate that multiplies by one; its decisions are given with a call."""
    none = np.zeros((0, channels), np.float32)
    return GateWeights(
        w1=none, b1=none[:, 0], w2=none.T.copy(), b2=np.ones(channels, np.float32),
        threshold=np.zeros(channels, np.float32), scales=True, group=1, top=0, absolute=False, most=np.inf,
    )  # fmt: skip


def test_a_program_that_differs_from_whole_numbers_is_told() -> None:
    case = next(
        case for case in map(ByteCase, range(100)) if any(isinstance(c.operator, ByteConv) for c in case.checks)
    )
    made = case.run()
    assert wrong(case) == []
    made[-1] = made[-1] + 1
    case.run = lambda: made  # type: ignore[method-assign]
    assert wrong(case) != []


def one_conv(change: dict[str, object], *, quantised: bool = True) -> ProgramWriter:
    """A program of one convolution of bytes, 5 channels to 3, with some fields of the convolution changed."""
    one = np.ones(1, np.float32)
    writer = ProgramWriter()
    writer.input(5, 4, 4)
    writer.shapes += [(5, 4, 4), (3, 4, 4), (3, 4, 4)]
    if quantised:
        writer.operators.append(Quantise(x=0, out=1, scale=one, zero=0))
    fields: dict[str, object] = {
        "x": 1, "residual": -1, "to_bytes": True, "out": 2, "window": Window(kernel=(1, 1)), "groups": 1, "gate": -1,
        "follows": False, "scale_after": False, "act": Activation("relu"), "zero": 0, "scale": one, "out_zero": 0,
        "weight": np.full((3, 5, 1, 1), 127, np.float32), "multiplier": np.ones(3, np.float32),
        "bias": np.zeros(3, np.float32), "residual_scale": one, "residual_zero": 0,
    }  # fmt: skip
    conv: Operator = ByteConv(**{**fields, **change})  # type: ignore[arg-type]
    writer.operators += [conv, Dequantise(x=2, out=3, scale=one, zero=0)]
    writer.output(3)
    return writer


def test_the_largest_bytes_and_weights_do_not_saturate_on_the_way() -> None:
    writer = one_conv({"scale": np.array([5 * 127.0], np.float32)})
    (y,), _ = writer.build().run([np.full((1, 5, 4, 4), 255, np.float32)], 1)
    assert (y == 255).all()


def test_zero_points_count_live_inputs_and_what_lies_around_the_map() -> None:
    """Bytes 200 with the zero point 200 are zeros, inside the map and around it, whichever channels are live."""
    kernel, one = np.full((3, 5, 3, 3), 127, np.float32), np.ones(1, np.float32)
    window = Window(kernel=(3, 3), padding=(1, 1))
    writer = one_conv({"zero": 200, "weight": kernel, "window": window, "to_bytes": False}, quantised=False)
    writer.operators = [
        writer.operators[0],
        Quantise(x=0, out=1, scale=one, zero=200),
        writer.operators[1],
    ]
    writer.output(2)
    (y,), _ = writer.build().run([np.zeros((1, 5, 4, 4), np.float32)], 1)
    assert (y == 0).all()
    (y,), _ = writer.build().run([np.full((1, 5, 4, 4), -200, np.float32)], 1)
    assert y[0, 0].tolist() == [[0.0] * 4] * 4  # a ReLU of what is negative
    (y,), _ = writer.build().run([np.full((1, 5, 4, 4), 55, np.float32)], 1)
    corner, edge, inside = (5 * 127 * 55 * taps for taps in (4, 6, 9))
    assert y[0, 1].tolist() == [
        [corner, edge, edge, corner],
        *[[edge, inside, inside, edge]] * 2,
        [corner, edge, edge, corner],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": np.full((3, 5, 1, 1), 128, np.float32)}, "a weight is not from -127 to 127"),
        ({"scale": np.zeros(1, np.float32)}, "a scale is not a positive number"),
        ({"scale": np.full(1, np.nan, np.float32)}, "a scale is not a positive number"),
        ({"zero": 256}, "a zero point is 256"),
        ({"out_zero": -1}, "a zero point is -1"),
        ({"groups": 2}, "groups do not divide the channels"),
        ({"act": Activation("clip", 2.0, 1.0)}, "an activation cuts to nothing"),
        ({"x": 0}, "value 0 is not of bytes"),
        ({"residual": 1}, "one shape"),
        ({"residual": 3}, "read before it is written"),
        ({"to_bytes": False}, "value 2 is not of bytes"),
        ({"gate": 0}, "a gate is 0"),
    ],
)
def test_a_convolution_that_is_not_sound_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SanpError, match=message):
        one_conv(change).build()


def test_floats_do_not_read_bytes() -> None:
    writer = one_conv({})
    weight, bias = np.ones((1, 5, 1, 1), np.float32), np.zeros(1, np.float32)
    writer.shapes.append((1, 4, 4))
    writer.operators.append(
        Conv(
            x=1, residual=-1, out=4, window=Window(kernel=(1, 1)), groups=1, gate=-1, follows=False,
            scale_after=False, act=IDENTITY, weight=weight, bias=bias,
        )
    )  # fmt: skip
    with pytest.raises(SanpError, match="value 1 is of bytes"):
        writer.build()
