"""The row of a plan for each operator of a native program: its word, its sizes, its multiply-adds."""

from collections.abc import Sequence
from math import prod

from sanp.engine.lowering.byte_operators import ByteConv
from sanp.engine.lowering.operators import Conv, Linear, Operator
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Shape
from sanp.engine.names import ALGORITHMS, OperatorKind
from sanp.engine.plan import PlanRow


def native_row(operator: Operator, name: str, algorithm: int, writer: ProgramWriter, why: str = "") -> PlanRow:
    """The row of one operator; ``name`` is that of its layer, ``algorithm`` a convolution's number.

    ``why`` is the reason for a convolution in fp32 among others in int8.
    """
    shapes = [writer.shapes[value] for value in _values(operator)]
    return PlanRow(
        name, "native", _how(operator, algorithm), why, flops=_flops(operator, shapes), detail=_detail(operator, shapes)
    )


def _how(operator: Operator, algorithm: int) -> str:
    """The word of the plan for an operator: a convolution's is its algorithm."""
    if operator.kind is OperatorKind.CONV:
        return ALGORITHMS[algorithm]
    if operator.kind is OperatorKind.BYTE_CONV:
        return "int8 direct"
    return "pool" if operator.kind is OperatorKind.ADAPTIVE else operator.kind.name.lower().replace("byte_", "int8 ")


def _values(operator: Operator) -> list[int]:
    """What it reads first and what it makes, as far as it has both."""
    values = getattr(operator, "values", ())
    ends = (getattr(operator, "x", getattr(operator, "a", values[0] if values else -1)), getattr(operator, "out", -1))
    return [value for value in ends if value >= 0]


def _flops(operator: Operator, shapes: Sequence[Shape]) -> int:
    if isinstance(operator, Conv | ByteConv):
        return prod(shapes[-1]) * prod(operator.weight.shape[1:])
    return operator.weight.size if isinstance(operator, Linear) else 0


def _detail(operator: Operator, shapes: Sequence[Shape]) -> str:
    sizes = " to ".join("x".join(map(str, shape)) for shape in shapes)
    if not isinstance(operator, Conv | ByteConv):
        return sizes
    kernel = "x".join(map(str, operator.window.kernel))
    stride = f"/{operator.window.stride[0]}" if operator.window.stride != (1, 1) else ""
    groups = f" in {operator.groups} groups" if operator.groups > 1 else ""
    return f"{kernel}{stride} {sizes}{groups}"
