"""Names of a program's values and convolutions that are the same in every compilation, so that a file can hold them."""

from collections.abc import Callable, Iterable, Sequence

from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.operators import Conv
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.quantise.candidates import candidates


def value_names(lowerings: Sequence[Lowering | None]) -> list[dict[int, str]]:
    """For each stage, the values that need a range, by number, and their names."""

    def of(writer: ProgramWriter) -> Iterable[int | None]:
        ranged = candidates(writer).ranged
        made = (getattr(operator, "out", None) for operator in writer.operators)
        return (value if value in ranged else None for value in made)

    return _named(lowerings, of)


def conv_names(lowerings: Sequence[Lowering | None]) -> list[dict[int, str]]:
    """For each stage, the convolutions, by number of the operator, and their names."""

    def of(writer: ProgramWriter) -> Iterable[int | None]:
        return (number if isinstance(operator, Conv) else None for number, operator in enumerate(writer.operators))

    return _named(lowerings, of)


def _named(
    lowerings: Sequence[Lowering | None], of: Callable[[ProgramWriter], Iterable[int | None]]
) -> list[dict[int, str]]:
    """What ``of`` gives for each operator of a program, None for nothing, with the name of the operator's unit.

    The second of one name is called ``name (2)``.
    """
    seen: dict[str, int] = {}
    named: list[dict[int, str]] = []
    for lowering in lowerings:
        names: dict[int, str] = {}
        if lowering is not None:
            assert isinstance(lowering.writer, ProgramWriter)
            for number, origin in zip(of(lowering.writer), lowering.origin, strict=True):
                if number is not None:
                    seen[origin] = seen.get(origin, 0) + 1
                    names[number] = origin if seen[origin] == 1 else f"{origin} ({seen[origin]})"
        named.append(names)
    return named
