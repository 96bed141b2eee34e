"""The int8 kernels against whole numbers: random programs on every instruction set, and what is refused."""

import numpy as np
import pytest

from sanp.core.errors import SanpError
from sanp.engine.library import Unavailable, native_library
from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.byte_operators import ByteConv, Dequantise, Quantise
from sanp.engine.lowering.operators import Conv, Operator
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Window
from tests.tools.byte_cases import ByteCase, wrong, wrong_byte_cases

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


@pytest.mark.parametrize("part", range(4))
def test_random_programs_agree_with_whole_numbers(part: int) -> None:
    assert wrong_byte_cases(range(part * 500, part * 500 + 500)) == []


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
def test_random_programs_agree_on_every_instruction_set(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANP_ISA", isa)
    try:
        ByteCase(0).run()
    except SanpError:
        pytest.skip(f"no {isa} kernels here")
    assert wrong_byte_cases(range(10_000, 10_150)) == []


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
