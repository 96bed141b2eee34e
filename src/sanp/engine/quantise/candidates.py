"""Which convolutions of a program can be computed on bytes, and which values they read; the others with the reason."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sanp.engine.lowering import operators as ops
from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.program import ProgramWriter

MOST_WEIGHT_BYTES = 16 * 1024
"""weights of one output channel, as in native/int8/bytes.hpp"""
_LINE = 64
"""weights of one tap lie on whole lines of so many bytes"""
_MUCH, _MUCH_SHARE = 5_000_000, 0.02
"""multiply-adds, and share of all, above which a first layer would take much of the time in fp32"""


@dataclass(frozen=True)
class Candidates:
    """What of a program can be computed on bytes."""

    convolutions: frozenset[int]
    """operators by number"""
    others: frozenset[int]
    """concatenations, additions and averages, likewise"""
    reasons: Mapping[int, str]
    """of the other convolutions, by number of the operator: why not"""
    roots: Mapping[int, int]
    """value to the value whose scale it has: the largest number under a window has that of what it is taken from, and
    so have channels in another order"""
    ranged: frozenset[int]
    """roots that need a range"""
    signed: frozenset[int]
    """those of them that may be negative"""


def candidates(writer: ProgramWriter, refused: Mapping[int, str] | None = None) -> Candidates:
    """What of a program can be computed on bytes; ``refused`` has operators that shall not, with the reason."""
    makers = {made: operator for operator in writer.operators if (made := getattr(operator, "out", None)) is not None}
    positive: dict[int, bool] = {}
    roots: dict[int, int] = {}
    reasons: dict[int, str] = {}
    found: set[int] = set()
    writable: dict[int, bool] = {}
    """values that can be made as bytes"""
    total = sum(_multiply_adds(writer, operator) for operator in writer.operators if isinstance(operator, ops.Conv))
    for number, operator in enumerate(writer.operators):
        out = getattr(operator, "out", None)
        if isinstance(operator, ops.Conv):
            why = _obstacle(writer, operator, makers, total) or (refused or {}).get(number)
            if why is None:
                found.add(number)
            else:
                reasons[number] = why
        if out is not None:
            positive[out] = _never_negative(operator, positive)
            writable[out] = number in found or _writable(operator, writable)
            follows = isinstance(operator, ops.Channels) or (isinstance(operator, ops.Pool) and operator.maximum)
            roots[out] = roots[operator.x] if follows else out  # type: ignore[union-attr]
    read = (writer.operators[number] for number in found)
    ranged = {roots[operator.x] for operator in read if isinstance(operator, ops.Conv)}
    others = set()
    for number, operator in reversed(list(enumerate(writer.operators))):
        if isinstance(operator, _OTHERS) and operator.out in ranged and writable[operator.out]:
            others.add(number)
            ranged |= {roots[value] for value in values_read(operator) if writable[value]}
    signed = frozenset(root for root in ranged if not positive[root])
    return Candidates(frozenset(found), frozenset(others), reasons, roots, frozenset(ranged), signed)


# A norm that follows a concatenation is not among them: in a small DenseNet, bytes before the norms changed the outputs
# by 10.7 % of their spread instead of 5.6 %, since one range holds channels of many sizes.
_OTHERS = (ops.Concat, ops.Add, ops.Pool)


def values_read(operator: ops.Concat | ops.Add | ops.Pool) -> tuple[int, ...]:
    """The values that it reads."""
    match operator:
        case ops.Concat(values=values):
            return values
        case ops.Add(a=a, b=b):
            return a, b
    return (operator.x,)


def _writable(operator: ops.Operator, writable: Mapping[int, bool]) -> bool:
    """Whether what it makes can be bytes, because what it reads can be; of a concatenation, a part is enough."""
    match operator:
        case ops.Concat(values=values):
            return any(writable[value] for value in values)
        case ops.Add() | ops.Pool():
            return all(writable[value] for value in values_read(operator))
        case ops.Channels(x=x):
            return writable[x]
    return False


def _multiply_adds(writer: ProgramWriter, conv: ops.Conv) -> int:
    return math.prod(writer.shapes[conv.out]) * math.prod(conv.weight.shape[1:])


def _obstacle(writer: ProgramWriter, conv: ops.Conv, makers: Mapping[int, ops.Operator], total: int) -> str | None:
    """Why a convolution cannot be computed on bytes, or None; ``total`` are the multiply-adds of all of them."""
    if isinstance(makers[conv.x], ops.Input) and _multiply_adds(writer, conv) <= max(_MUCH, _MUCH_SHARE * total):
        return "the first layer stays in fp32"
    channels, taps = writer.shapes[conv.x][0] // conv.groups, conv.window.kernel[0] * conv.window.kernel[1]
    if (channels + _LINE - 1) // _LINE * _LINE * taps > MOST_WEIGHT_BYTES:
        return "an output channel has too many weights"
    return None


def _never_negative(operator: ops.Operator, positive: Mapping[int, bool]) -> bool:
    match operator:
        case ops.Conv(act=act, scale_after=scaled):
            return not scaled and _cuts(act)  # nothing says that what scales it is not negative
        case ops.Activate(act=act, x=x):
            return _cuts(act) or (act.kind == "none" and positive[x])
        case ops.Add(act=act, a=a, b=b):
            return _cuts(act) or (act.kind == "none" and positive[a] and positive[b])
        case ops.Affine(act=act) | ops.Linear(act=act):
            return _cuts(act)
        case ops.Pool(x=x, inverse=inverse):
            return positive[x] and (inverse is None or bool((inverse >= 0).all()))
        case ops.Adaptive(x=x) | ops.Channels(x=x) | ops.Flatten(x=x):
            return positive[x]
        case ops.Concat(values=values):
            return all(positive[value] for value in values)
        case ops.Multiply(a=a, b=b):
            return positive[a] and positive[b]
    return False


def _cuts(act: Activation) -> bool:
    return act.kind in ("relu", "sigmoid", "hardsigmoid") or (act.kind == "clip" and act.a >= 0)
