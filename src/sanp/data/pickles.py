"""Reading a CIFAR file without unpickling: a machine for the few pickle opcodes that such files contain.

It calls nothing and imports nothing that the file names: the few names that numpy writes are recognised, and stand for
making a uint8 array from the bytes in the file. Every other name, opcode or type is refused, and so is a file that
would take more memory than a CIFAR file does.
"""

import pickletools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sanp.core.errors import SanpError
from sanp.core.files import read_bytes

LARGEST_FILE = 320 * 2**20
"""CIFAR-100's training file is 155 MB, and 222 MB where a Python 3 program wrote it again in protocol 2."""
MOST_OPCODES = 1_000_000
"""CIFAR-100's training file has about 300,000."""

_Bytes = npt.NDArray[np.uint8]
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Name:
    """A global that the file names: it is compared, never looked up."""

    text: str


class _Dtype:
    """Stands for numpy's uint8."""


@dataclass
class _Array:
    """Stands for an array until its content comes."""

    value: _Bytes | None = None


_RECONSTRUCT = {_Name(f"numpy.{core}.multiarray _reconstruct") for core in ("core", "_core")}
_FROM_BUFFER = {_Name(f"numpy.{core}.numeric _frombuffer") for core in ("core", "_core")}
_NDARRAY, _DTYPE, _ENCODE = _Name("numpy ndarray"), _Name("numpy dtype"), _Name("_codecs encode")
_NAMES = {*_RECONSTRUCT, *_FROM_BUFFER, _NDARRAY, _DTYPE, _ENCODE}

_TEXT = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_PYTHON_2_BYTES = {"BINSTRING", "SHORT_BINSTRING"}
_VALUES = {*_TEXT, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "BININT", "BININT1", "BININT2"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_cifar_file(path: Path) -> dict[str, object]:
    """The dictionary in a CIFAR file; keys as text, arrays as uint8."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise SanpError(f"{path} has {size} bytes, more than any CIFAR file: get the data set again")
        found = _Machine(read_bytes(path, LARGEST_FILE)).run()
    except OSError as error:
        raise SanpError(
            f"{path} cannot be read ({error.strerror}): check the file, or get the data set again"
        ) from error
    except (ValueError, TypeError, LookupError, OverflowError, MemoryError, Warning) as error:
        if isinstance(error, SanpError):
            raise
        raise SanpError(f"{path} is not a CIFAR file ({error}): remove it and get the data set again") from error
    return found


@dataclass
class _Machine:
    data: bytes
    stack: list[object] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, object] = field(default_factory=dict)
    encoded: int = 0

    def run(self) -> dict[str, object]:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self.data)):
            if count >= MOST_OPCODES:
                raise ValueError(f"more than {MOST_OPCODES} steps")
            if opcode.name in _VALUES:
                self.stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
            elif opcode.name in _PYTHON_2_BYTES:
                self.stack.append(_expect(argument, str).encode("latin-1"))
            else:
                self.step(opcode.name, argument)
        return _plain(self.stack.pop())

    def step(self, opcode: str, argument: object) -> None:
        stack = self.stack
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append(_CONSTANTS[opcode])
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "MARK":
                self.marks.append(len(stack))
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self.take(_TUPLES[opcode])))
            case "TUPLE":
                stack.append(tuple(self.take_to_mark()))
            case "APPEND" | "APPENDS":
                items = self.take(1) if opcode == "APPEND" else self.take_to_mark()
                _expect(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.take(2) if opcode == "SETITEM" else self.take_to_mark()
                _set_items(_expect(stack[-1], dict), items)
            case "BINPUT" | "LONG_BINPUT":
                self.memo[_expect(argument, int)] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[_expect(argument, int)])
            case "GLOBAL" | "STACK_GLOBAL":
                name = argument if opcode == "GLOBAL" else " ".join(_expect(part, str) for part in self.take(2))
                stack.append(_allowed(_Name(_expect(name, str))))
            case "REDUCE":
                function, arguments = self.take(2)
                stack.append(self.reduce(function, _expect(arguments, tuple)))
            case "BUILD":
                (state,) = self.take(1)
                _build(stack[-1], _expect(state, tuple))
            case _:
                raise ValueError(f"it holds the opcode {opcode}, which no CIFAR file does")

    def take(self, count: int) -> list[object]:
        """The last values of the stack, down to the last mark at most."""
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes values that it did not give")
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def take_to_mark(self) -> list[object]:
        taken = self.take(len(self.stack) - self.marks[-1])
        self.marks.pop()
        return taken

    def reduce(self, function: object, arguments: tuple[object, ...]) -> object:
        """What the few calls of a CIFAR file stand for."""
        if function in _RECONSTRUCT and arguments[:1] == (_NDARRAY,):
            return _Array()
        if function == _DTYPE and arguments[:1] in (("u1",), (b"u1",)):
            return _Dtype()
        if function == _ENCODE and len(arguments) == 2 and arguments[1] == "latin1":  # bytes, as protocol 2 has none
            encoded = _expect(arguments[0], str).encode("latin-1")
            self.encoded += len(encoded)
            if self.encoded > len(self.data):
                raise ValueError("it repeats its content")
            return encoded
        if function in _FROM_BUFFER and len(arguments) == 4:
            content, dtype, shape, order = arguments
            return _Array(_array(content, dtype, shape, fortran=order == "F"))
        raise ValueError(f"it calls {function.text if isinstance(function, _Name) else 'a value'} in an unknown way")


def _build(value: object, state: tuple[object, ...]) -> None:
    """What numpy calls __setstate__; of a dtype, all that it could say of uint8 is known."""
    if isinstance(value, _Array) and len(state) == 5:
        _, shape, dtype, fortran, content = state
        value.value = _array(content, dtype, shape, fortran=bool(fortran))
    elif not isinstance(value, _Dtype):
        raise ValueError("it sets the state of something other than an array")


def _array(content: object, dtype: object, shape: object, *, fortran: bool) -> _Bytes:
    _expect(dtype, _Dtype)
    sides = [_expect(side, int) for side in _expect(shape, tuple)]
    if any(side < 0 for side in sides):
        raise ValueError(f"an array has the shape {tuple(sides)}")
    return np.frombuffer(_expect(content, bytes), np.uint8).reshape(sides, order="F" if fortran else "C")


def _set_items(target: dict[object, object], items: list[object]) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | bytes):
            raise TypeError(f"a key is a {type(key).__name__}")
        target[key] = value


def _plain(found: object) -> dict[str, object]:
    def text(key: object) -> str:
        return key.decode("latin-1") if isinstance(key, bytes) else str(key)

    return {
        text(key): value.value if isinstance(value, _Array) else value for key, value in _expect(found, dict).items()
    }


def _allowed(name: _Name) -> _Name:
    if name not in _NAMES:
        raise ValueError(f"it asks for {name.text[:80]!r}, which no CIFAR file does")
    return name


def _expect(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} stands where a {kind.__name__} belongs")
    return value
