"""Counts the parts of a picture file before a decoder goes through them: a small file can hold work for minutes.

Pillow reads chunks and segments one by one in Python, libjpeg goes through the whole image for every scan, and each of
the thousands of tags of an EXIF block may name the whole block as its content.
"""

from sanp.core.limits import LARGEST_EXIF, MOST_PICTURE_CHUNKS, MOST_PICTURE_PARTS, MOST_SCANS

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_SCAN = b"\xff\xda"
_EXIF = b"Exif\0\0"


def check_parts(content: bytes) -> None:
    """Raises a ValueError if a PNG or JPEG file has more parts than any camera or program writes."""
    if content.startswith(_PNG):
        _check_png(content)
    elif content.startswith(_JPEG):
        _check_jpeg(content)


def _check_png(content: bytes) -> None:
    place, chunks, others = len(_PNG), 0, 0
    while place + 8 <= len(content):
        length, kind = int.from_bytes(content[place : place + 4]), content[place + 4 : place + 8]
        chunks, others = chunks + 1, others + (kind != b"IDAT")
        if chunks > MOST_PICTURE_CHUNKS or others > MOST_PICTURE_PARTS:
            raise ValueError(f"more than {MOST_PICTURE_CHUNKS} chunks, or {MOST_PICTURE_PARTS} that hold no pixels")
        if kind == b"eXIf":
            check_exif(length)
        place += 12 + length  # with length, kind and checksum


def _check_jpeg(content: bytes) -> None:
    place, parts, exif = len(_JPEG), 0, 0
    while (start := content.find(b"\xff", place)) >= 0 and not content.startswith(_SCAN, start):
        parts += 1 + start - place  # what lies between two segments is read byte by byte
        if parts > MOST_PICTURE_PARTS:
            raise ValueError(f"more than {MOST_PICTURE_PARTS} segments, or bytes between them")
        marker = content[start + 1 : start + 2]
        if marker == b"\xff":  # a byte that fills
            place = start + 1
        elif marker in _ALONE:
            place = start + 2
        else:
            if marker == b"\xe1" and content.startswith(_EXIF, start + 4):
                exif += int.from_bytes(content[start + 2 : start + 4])
                check_exif(exif)
            place = start + 2 + max(2, int.from_bytes(content[start + 2 : start + 4]))
    if start >= 0 and content.count(_SCAN, start) > MOST_SCANS:
        raise ValueError(f"more than {MOST_SCANS} scans")


_ALONE = {b"\x00", *(bytes([number]) for number in range(0xD0, 0xDA))}
"""markers without a length: escaped bytes, restarts, begin and end"""


def check_exif(size: int) -> None:
    """Raises a ValueError for an EXIF block of more bytes than a JPEG segment can hold."""
    if size > LARGEST_EXIF:
        raise ValueError(f"EXIF of {size} bytes, more than {LARGEST_EXIF}")
