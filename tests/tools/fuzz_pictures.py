"""Pictures and data sets for the fuzzer."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from sanp.core.errors import SanpError
from sanp.data.cifar import CIFAR10, read_cifar, write_batch, write_meta
from sanp.data.decode import decode
from sanp.data.folder_check import check_folder
from tests.tools import mutate
from tests.tools.fuzz_target import Target, kept_whole


def pictures(folder: Path) -> list[Target]:
    """Files of CIFAR-10, pictures, and a folder of pictures."""
    root = folder / CIFAR10.folder
    root.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for name in (*CIFAR10.train, CIFAR10.test):
        write_batch(root / name, CIFAR10, noise.integers(0, 256, (20, 3072), dtype=np.uint8), list(range(10)) * 2)
    write_meta(root / CIFAR10.meta, CIFAR10, [f"class {number}" for number in range(10)])
    small = Image.fromarray(noise.integers(0, 256, (40, 56, 3), dtype=np.uint8))
    wide = Image.fromarray(noise.integers(0, 65536, (30, 20), dtype=np.uint16))
    files = []
    for image, kind, extra in (
        (small, "PNG", {}),
        (
            small,
            "JPEG",
            {"exif": b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00"},
        ),
        (small, "JPEG", {"progressive": True}),
        (small, "WEBP", {}),
        (small.convert("P"), "PNG", {"transparency": 3}),
        (small.convert("RGBA"), "PNG", {}),
        (wide, "PNG", {}),
    ):
        out = BytesIO()
        image.save(out, kind, **extra)
        files.append(out.getvalue())
    picture = folder / "picture"

    def cifar(name: str) -> Target:
        path = root / name
        read = kept_whole(path, lambda: read_cifar(CIFAR10, folder))
        return Target("cifar", [path.read_bytes()], path, read, [mutate.in_bytes])

    image = Target("image", files, picture, lambda: decode(picture, 32), [mutate.in_bytes, mutate.in_picture])
    return [cifar("data_batch_3"), cifar("batches.meta"), image, _folder(folder / "classes", files)]


def _folder(folder: Path, files: list[bytes]) -> Target:
    """A folder of pictures, as training would read it."""
    for name in ("a", "[red]b"):
        (folder / name).mkdir(parents=True)
        for number, file in enumerate((files[0], files[2], files[3])):  # the second has a damaged EXIF block
            (folder / name / f"{number}.png").write_bytes(file)
    path = folder / "a" / "1.png"

    def read() -> None:
        found = check_folder(folder, size=8)
        if found.broken:
            raise SanpError(found.broken[0])

    return Target("folder", files, path, kept_whole(path, read), [mutate.in_bytes, mutate.in_picture])
