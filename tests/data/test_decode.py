import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sanp.core.errors import SanpError
from sanp.data.decode import decode
from tests.data.image_files import noise, save

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def colour(path: Path, size: int = 16) -> tuple[int, ...]:
    """The one colour of an image."""
    pixels = decode(path, size)
    assert (pixels == pixels[:, :1, :1]).all()
    return tuple(pixels[:, 0, 0].tolist())


def test_the_shorter_side_is_scaled_and_the_middle_kept(tmp_path: Path) -> None:
    wide = Image.new("RGB", (96, 32), RED)
    wide.paste(GREEN, (30, 0, 66, 32))  # the middle third, and the two pixels that scaling blends into it
    assert colour(save(tmp_path / "wide.png", wide)) == GREEN
    assert colour(save(tmp_path / "tall.png", wide.rotate(90, expand=True))) == GREEN
    exact = decode(save(tmp_path / "noise.png", noise(0, 32, 32)), 32)
    assert np.array_equal(exact, np.asarray(noise(0, 32, 32)).transpose(2, 0, 1))
    large = save(tmp_path / "large.jpg", Image.new("RGB", (2000, 1000), (200, 100, 50)), quality=95)
    assert np.abs(np.subtract(colour(large), (200, 100, 50))).max() <= 2


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (32, 32), BLUE)
    image.paste(RED, (0, 0, 16, 32))  # left half
    exif = Image.Exif()
    exif[0x0112] = 6  # column 0 is the top, says the EXIF standard
    for name in ("turned.jpg", "turned.png", "turned.webp"):
        pixels = decode(save(tmp_path / name, image, exif=exif), 32).astype(int)
        assert pixels[0, :12].min() > 200 > 60 > pixels[0, 20:].max(), name


def test_every_mode_becomes_rgb(tmp_path: Path) -> None:
    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([*RED, *GREEN, *BLUE])
    assert colour(save(tmp_path / "palette.png", palette)) == GREEN
    assert colour(save(tmp_path / "clear.png", palette, transparency=b"\x00\x80\xff")) == GREEN
    assert colour(save(tmp_path / "grey.png", Image.new("L", (20, 20), 77))) == (77, 77, 77)
    assert colour(save(tmp_path / "alpha.png", Image.new("RGBA", (20, 20), (*BLUE, 128)))) == BLUE
    assert colour(save(tmp_path / "greyalpha.png", Image.new("LA", (20, 20), (77, 3)))) == (77, 77, 77)
    assert colour(save(tmp_path / "bits.png", Image.new("1", (20, 20), 1))) == (255, 255, 255)
    assert colour(save(tmp_path / "lossless.webp", Image.new("RGBA", (20, 20), (*RED, 255)), lossless=True)) == RED
    deep = Image.fromarray(np.full((20, 20), 0x4D12, dtype=np.uint16))
    assert colour(save(tmp_path / "deep.png", deep)) == (0x4D, 0x4D, 0x4D)
    ink = save(tmp_path / "ink.jpg", Image.new("CMYK", (20, 20), (0, 255, 255, 0)), quality=95)
    assert np.abs(np.subtract(colour(ink), RED)).max() <= 4


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image",
        png_that_claims(9_000, 9_000),
        png_that_claims(12_000, 12_000),
        png_that_claims(2**31 - 1, 2**31 - 1),
        png_that_claims(64, 64),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        b"GIF89a" + bytes(100),
    ],
    ids=["empty", "text", "81 M pixels", "144 M pixels", "2^62 pixels", "truncated", "postscript", "gif"],
)
def test_an_unreadable_image_or_a_decompression_bomb_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(SanpError, match=r"bad\.png cannot be read as an image"):
        decode(path, 32)


@pytest.mark.filterwarnings("ignore")  # Pillow warns of some damage before it gives up
def test_an_image_with_changed_bytes_is_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(0)
    sources = [save(tmp_path / name, noise(0)).read_bytes() for name in ("a.png", "a.jpg", "a.webp")]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(200):
        content = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / "b.png").write_bytes(content)
        try:
            assert decode(tmp_path / "b.png", 16).shape == (3, 16, 16)
            outcomes["read"] += 1
        except SanpError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20


def test_an_image_becomes_square_as_asked(tmp_path: Path) -> None:
    halves = np.zeros((16, 32, 3), np.uint8)
    halves[:, :8], halves[:, 24:] = (255, 0, 0), (0, 0, 255)  # red at the left end, blue at the right end
    path = save(tmp_path / "wide.png", Image.fromarray(halves))
    crop, pad, stretch = (decode(path, 16, resize) for resize in ("crop", "pad", "stretch"))
    assert crop.max() == 0  # the ends are gone
    assert pad[:, 8, 0].tolist() == [255, 0, 0] and pad[:, 0, 8].tolist() == [124, 116, 104]
    assert stretch[:, 0, 0].tolist() == [255, 0, 0] and stretch[:, 0, 15].tolist() == [0, 0, 255]
    with pytest.raises(SanpError, match="unknown resize 'cut'"):
        decode(path, 16, "cut")  # type: ignore[arg-type]
