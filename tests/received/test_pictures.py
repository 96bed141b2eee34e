"""Picture files that were received: small files that hold work for minutes or memory for a machine."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sanp
from sanp.data.decode import decode, decode_sized
from tests.core.test_files import within


def test_a_picture_that_is_one_pixel_wide_and_very_long_is_refused(tmp_path: Path) -> None:
    Image.new("1", (1, 70_000)).save(tmp_path / "long.png")
    with pytest.raises(sanp.SanpError, match="1x70000 pixels, a side of more than 65536"):
        decode(tmp_path / "long.png", 32)


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(*, before: bytes = b"", after: bytes = b"") -> bytes:
    """A PNG file of 8x8 pixels with more chunks before and after its pixels."""
    start = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(8 * (1 + 24))))
    return b"\x89PNG\r\n\x1a\n" + start + before + pixels + after + chunk(b"IEND")


def jpeg(*, between: bytes = b"", progressive: bool = False) -> bytes:
    """A JPEG file of 8x8 pixels with more bytes after its first marker."""
    out = BytesIO()
    Image.new("RGB", (8, 8)).save(out, "JPEG", progressive=progressive)
    return out.getvalue()[:2] + between + out.getvalue()[2:]


def scans(count: int) -> bytes:
    """A progressive JPEG file whose last scan is repeated."""
    whole = jpeg(progressive=True)
    start, end = whole.rfind(b"\xff\xda"), whole.rfind(b"\xff\xd9")
    return whole[:end] + whole[start:end] * count + whole[end:]


def exif(size: int) -> bytes:
    """An EXIF block of which every tag has the whole block as its content."""
    tags = (size - 26) // 12
    entries = b"".join(struct.pack("<HHII", 1000 + tag, 1, size - 10, 8) for tag in range(min(tags, 60_000)))
    return (b"II*\0\x08\0\0\0" + struct.pack("<H", min(tags, 60_000)) + entries).ljust(size, b"\0")


def segments(block: bytes) -> bytes:
    """An EXIF block in as many segments of a JPEG file as it takes."""
    parts = [b"Exif\0\0" + block[start : start + 60_000] for start in range(0, len(block), 60_000)]
    return b"".join(b"\xff\xe1" + struct.pack(">H", 2 + len(part)) + part for part in parts)


def raw_profile(block: bytes) -> bytes:
    """An EXIF block as ImageMagick writes it into a PNG file."""
    text = f"\nexif\n{len(block):8}\n{block.hex()}".encode()
    return chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text))


HOSTILE = {
    "chunks without pixels": (png(before=chunk(b"prVt") * 20_000), "chunks"),
    "chunks after the pixels": (png(after=chunk(b"tEXt", b"a\0b") * 20_000), "chunks"),
    "colour profiles": (png(before=chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(900_000))) * 1001), "chunks"),
    "empty pixels": (png(after=chunk(b"IDAT") * 70_000), "chunks"),
    "comments": (jpeg(between=b"\xff\xfe\0\2" * 20_000), "segments"),
    "bytes that fill": (jpeg(between=b"\xff" * 100_000), "segments"),
    "bytes between": (jpeg(between=b"\0" * 100_000), "segments"),
    "restarts": (jpeg(between=b"\xff\xd0" * 20_000), "segments"),
    "scans": (scans(300), "more than 200 scans"),
    "EXIF in JPEG": (jpeg(between=segments(exif(200_000))), "EXIF of"),
    "EXIF in PNG": (png(before=chunk(b"eXIf", exif(200_000))), "EXIF of"),
    "EXIF after the pixels": (png(after=chunk(b"eXIf", exif(200_000))), "EXIF of"),
    "EXIF as text": (png(before=raw_profile(exif(200_000))), "EXIF of"),
    "EXIF as text after the pixels": (png(after=raw_profile(exif(200_000))), "EXIF of"),
}


@pytest.mark.parametrize(("content", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_small_file_that_holds_much_work_is_refused_at_once(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "picture"
    path.write_bytes(content)
    with within(5), pytest.raises(sanp.SanpError, match=words):
        decode(path, 32)


def test_a_webp_file_with_a_large_exif_block_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.webp", exif=exif(200_000))
    with within(5), pytest.raises(sanp.SanpError, match="EXIF of"):
        decode(tmp_path / "a.webp", 32)


def test_files_within_the_limits_are_read(tmp_path: Path) -> None:
    usual = Image.Exif()
    usual[0x010E] = "x" * 50_000  # a description
    block = usual.tobytes()
    for content in (
        png(before=chunk(b"tEXt", b"a\0b") * 500, after=raw_profile(block)),
        jpeg(between=b"\xff\xfe\0\2" * 500 + segments(block)),
        scans(50),
    ):
        (tmp_path / "picture").write_bytes(content)
        assert decode(tmp_path / "picture", 16).shape == (3, 16, 16)


@pytest.mark.parametrize("turn", range(9))
def test_a_picture_is_turned_as_pillow_turns_it(tmp_path: Path, turn: int) -> None:
    from PIL import ImageOps

    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    how = Image.Exif()
    how[0x0112] = turn
    image.save(tmp_path / "a.png", exif=how)
    with Image.open(tmp_path / "a.png") as opened:
        upright = ImageOps.exif_transpose(opened)
    found, size = decode_sized(tmp_path / "a.png", 20, "stretch")
    expected = upright.resize((20, 20), Image.Resampling.BILINEAR)
    assert size == upright.size
    assert np.array_equal(found, np.asarray(expected).transpose(2, 0, 1))
