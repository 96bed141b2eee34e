import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sanp.core.errors import SanpError
from sanp.data import Augment, Batches, FileSplit, Split, load
from sanp.data import imagefolder as module
from sanp.data.decode import decode

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def noise(seed: int, width: int = 20, height: int = 14) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def folder_of(root: Path, *, splits: Iterable[str] = ("train", "val"), count: int = 3) -> Path:
    for split in splits:
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                save(root / split / name / f"{number}.png", noise(10 * number + label))
    return root


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


def test_classes_are_the_folders_in_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    folder_of(tmp_path, splits=("train", "test"))
    save(tmp_path / "train" / "ant" / "deep" / "0.JPEG", noise(7), format="JPEG")
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".cache").mkdir()
    found = load(f"imagefolder:{tmp_path}", size=16)
    assert found.classes == ("ant", "cat", "dog")
    assert found.train.labels.tolist() == [0, 1, 1, 1, 2, 2, 2]
    assert found.test.labels.tolist() == [1, 1, 1, 2, 2, 2]
    assert isinstance(found.train, Split)
    assert (found.channels, found.image_size, found.num_classes) == (3, 16, 3)
    assert np.array_equal(found.train.images[1].numpy(), decode(tmp_path / "train" / "cat" / "0.png", 16))


def test_test_is_taken_before_val_unless_it_has_no_class_folders(tmp_path: Path) -> None:
    folder_of(tmp_path, splits=("train", "val"))
    folder_of(tmp_path, splits=("test",), count=5)
    assert len(load(f"imagefolder:{tmp_path}").test) == 10
    for file in (tmp_path / "test").rglob("*.png"):
        file.rename(tmp_path / "test" / f"{file.parent.name}{file.name}")
    for name in ("cat", "dog"):
        (tmp_path / "test" / name).rmdir()
    assert len(load(f"imagefolder:{tmp_path}").test) == 6


def test_a_folder_that_cannot_be_trained_on_is_refused(tmp_path: Path) -> None:
    def refused(name: str, says: str, *splits: str) -> Path:
        root = folder_of(tmp_path / name, splits=splits)
        with pytest.raises(SanpError, match=says):
            load(f"imagefolder:{root}")
        return root

    refused("half", "has no val/ or test/", "train")
    refused("other", "has no train/", "val")
    root = folder_of(tmp_path / "more")
    save(root / "val" / "eel" / "0.png", noise(0))
    refused("more", r"classes that .*train lacks \(eel\)", "train")
    (root / "val" / "eel" / "0.png").unlink()
    (root / "val" / "eel").rmdir()
    (root / "train" / "fox").mkdir()
    refused("more", "fox holds no PNG, JPEG or WebP file", "train")
    save(tmp_path / "one" / "train" / "cat" / "0.png", noise(0))
    (tmp_path / "one" / "val").mkdir()
    with pytest.raises(SanpError, match="all 1 images are of class 0"):
        load(f"imagefolder:{tmp_path / 'one'}")
    broken = folder_of(tmp_path / "broken") / "train" / "dog" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(SanpError, match=r"train/dog/1\.png cannot be read as an image"):
        load(f"imagefolder:{tmp_path / 'broken'}")


def test_images_on_disk_give_the_same_batches_as_images_in_memory(tmp_path: Path) -> None:
    folder_of(tmp_path, count=9)
    memory, disk = (load(f"imagefolder:{tmp_path}", size=16, memory=most) for most in (2**30, 0))
    assert isinstance(memory.train, Split)
    assert isinstance(disk.train, FileSplit)
    assert (memory.mean, memory.std) == (disk.mean, disk.std)
    augment = Augment(flip=True, translate=2, cutout=4)
    ours, theirs = (
        Batches(data.train, 4, mean=data.mean, std=data.std, augment=augment, shuffle=True) for data in (memory, disk)
    )
    for first in (0, 0, 2):
        pairs = list(zip(ours.starting_at(first), theirs.starting_at(first), strict=True))
        assert len(pairs) == 5 - first
        assert all(torch.equal(x, x2) and torch.equal(y, y2) for (x, y), (x2, y2) in pairs)
    few = load(f"imagefolder:{tmp_path}", size=16, memory=0, limit=7)
    assert len(few.train) == 7


def test_no_more_than_two_batches_are_decoded_ahead_and_no_thread_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path, count=20)
    started = 0
    lock = threading.Lock()

    def counted(path: Path, size: int) -> np.ndarray:
        nonlocal started
        with lock:
            started += 1
        return decode(path, size)

    found = load(f"imagefolder:{tmp_path}", size=16, memory=0)
    monkeypatch.setattr(module, "decode", counted)
    running = iter(Batches(found.train, 4, mean=found.mean, std=found.std))
    for used in range(1, 5):
        next(running)
        time.sleep(0.02)  # a slow network: the threads could run far ahead
        assert 4 * used <= started <= 4 * (used + 2)
    assert any(thread.name.startswith("sanp-decode") for thread in threading.enumerate())
    del running
    assert not any(thread.name.startswith("sanp-decode") for thread in threading.enumerate())


MEASURE = """
import resource, sys, torch
from sanp.data import Batches, load
torch.set_num_threads(1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
found = load("imagefolder:" + sys.argv[1], size=256, memory=50_000_000)
images = sum(len(x) for x, _ in Batches(found.train, 8, mean=found.mean, std=found.std))
print(images, images * 3 * 256 * 256, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_memory_does_not_grow_with_the_number_of_images_on_disk(tmp_path: Path) -> None:
    first = save(tmp_path / "first.png", Image.new("1", (256, 256)))
    for folder, count in (("train/cat", 400), ("train/dog", 400), ("val/cat", 1), ("val/dog", 1)):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            os.link(first, tmp_path / folder / f"{number}.png")
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    images, size, growth = map(int, out.split())
    assert images == 800
    assert size > 150e6  # what they would take in memory
    assert growth < size / 2
