"""Loads a native library; one that was cut short is refused, since using it would end the process with SIGBUS."""

import ctypes
import errno
import os
import struct
from pathlib import Path

_HEADER = struct.Struct("<32xQ14xHH")
"""of a 64-bit ELF file: the offset of its program headers, their size and their number"""
_SEGMENT = struct.Struct("<I4xQ16xQ")
"""of a program header: its kind, where its part of the file begins and how long that is"""
_LOADED = 1
"""the kind of a part that is mapped into memory"""


def load_library(path: Path) -> ctypes.CDLL:
    """The library in the file ``path``; an OSError if it is no ordinary file, cut short or cannot be loaded."""
    if not path.is_file():
        raise OSError(errno.ENOENT, "it is not a file")
    if _missing_bytes(path):
        raise OSError(errno.ENOEXEC, "the file is cut short")
    return ctypes.CDLL(str(path))


def _missing_bytes(path: Path) -> bool:
    """Whether an ELF file ends before the parts that it says it has; false for files of other formats."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(64)
        if start[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return False
        if len(start) < 64:
            return True
        offset, each, count = _HEADER.unpack_from(start)
        file.seek(offset)
        table = file.read(each * count)
    if len(table) < each * count or each < _SEGMENT.size:
        return True
    segments = (_SEGMENT.unpack_from(table, each * number) for number in range(count))
    return any(kind == _LOADED and begin + length > size for kind, begin, length in segments)
