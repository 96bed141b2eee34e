"""Memory that one training step frees serves the next: the system would hand it out again page by page."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # malloc.h of the GNU C library


def keep_freed_memory() -> bool:
    """Has this process keep what it frees; false where the C library does not offer that.

    Feature maps of tens of megabytes are made and freed all the time; a step takes 5 to 14 % less (docs/log.md).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**28))
    return all(mallopt(name, value) == 1 for name, value in settings)
