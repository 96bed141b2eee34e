"""The files that the fuzzer damages: whole ones of every kind that sanp reads, and what reads them."""

import copy
import json
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import sanp
from sanp.checkpoint import load, save
from sanp.cli.console import plain
from sanp.core.errors import SanpError
from sanp.data.cifar import CIFAR10, read_cifar, write_batch, write_meta
from sanp.data.decode import decode
from sanp.experiments import table
from sanp.experiments.metrics import ProgressLog, read_metrics
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.experiments.run import train
from sanp.experiments.run_folder import read_report, read_run
from sanp.experiments.state import Position, Saved
from sanp.methods.cutting.cut import cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.methods.weight import SparseNetwork
from sanp.report.predict import Predictor
from sanp.report.run_data import read_runs
from sanp.report.run_section import run_section
from sanp.report.study_file import STUDY_FILE
from sanp.training.fitting import fit_stages
from sanp.training.stage import Stage
from sanp.training.task import Task
from tests.tools import mutate, tiny_run
from tests.tools.fuzz_places import in_its_place

EXAMPLE = torch.zeros(1, 3, 8, 8)


@dataclass(frozen=True)
class Target:
    """A kind of file: whole ones, where it lies, what reads it, and how it can be damaged."""

    name: str
    whole: list[bytes]
    path: Path
    read: Callable[[], object]
    mutations: list[mutate.Mutation]

    def run(self, dice: random.Random) -> bool:
        """Reads one damaged file; whether it could be read."""
        whole = dice.choice(self.whole)
        if dice.random() < 0.04:
            with in_its_place(self.path, whole, dice):
                return self._is_read()
        self.path.write_bytes(dice.choice(self.mutations)(whole, dice))
        return self._is_read()

    def _is_read(self) -> bool:
        try:
            self.read()
        except SanpError as error:
            assert len(str(error).strip()) > 10, f"an empty error: {error!r}"
            assert plain(error).isprintable()
            return False
        return True


def targets(folder: Path) -> dict[str, list[Target]]:
    """Everything that a user may have received from someone, by name."""
    torch.manual_seed(0)  # a case is its number: the files must be the same every time
    named: dict[str, list[Target]] = {}
    for target in (*_networks(folder), *_runs(folder), *_images(folder), *_pages(folder)):
        named.setdefault(target.name, []).append(target)
    return named


def _networks(folder: Path) -> list[Target]:
    folder.mkdir(parents=True, exist_ok=True)
    net = tiny_run.Tiny()
    path = folder / "net.safetensors"

    def read() -> Tensor:
        y: Tensor = load(path, net)(torch.zeros(2, 3, 8, 8))
        return y

    def target(name: str, networks: list[torch.nn.Module]) -> Target:
        whole = []
        for network in networks:
            save(network, path)
            whole.append(path.read_bytes())
        return Target(name, whole, path, read, [mutate.in_bytes, mutate.in_safetensors, mutate.in_safetensors])

    gated = sanp.gate(net, EXAMPLE)
    gated.set_budget("60%", torch.randn(16, 3, 8, 8))
    return [target("network", [net, gated, gated]), target("form", _forms(net))]


def _forms(net: torch.nn.Module) -> list[torch.nn.Module]:
    """The network pruned but not gated: cut, sparse, gated by pixel."""
    channel_groups = find_groups(net, EXAMPLE)
    first = channel_groups.members["features.0"].outputs
    assert first is not None
    smaller = cut(net, channel_groups, set(channel_groups.groups_of(first)[:3].tolist()), EXAMPLE, method="l1")
    sparse = SparseNetwork(copy.deepcopy(net), EXAMPLE)
    sparse.drop(0.5)
    return [smaller, smaller, sparse, PixelGatedNetwork(copy.deepcopy(net), EXAMPLE, 4)]


def _stage() -> Stage:
    """The joint stage of the tiny network, a few steps long."""
    dataset = tiny_run.squares()
    batches = sanp.data.Batches(dataset.train, 32, mean=dataset.mean, std=dataset.std, drop_last=True)
    gated = sanp.gate(tiny_run.Tiny(), EXAMPLE)
    config = sanp.FitConfig(warmup_epochs=0, joint_epochs=1, precision="fp32", distill=0.0)
    return next(fit_stages(gated, Task(loader=batches, budget="60%", config=config)))


def _runs(folder: Path) -> list[Target]:
    run = folder / "run"
    short = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "norm_batches": 1}
    short |= {"precision": "fp32", "distill": 0.0}  # one epoch makes no teacher
    train(tiny_run.recipe(fit=short), run)
    whole = {name: (run / name).read_bytes() for name in ("config.toml", "metrics.jsonl", "report.json")}
    recipe = folder / "recipe.toml"
    metrics = folder / "log" / "metrics.jsonl"
    metrics.parent.mkdir()
    stage = _stage()
    steps = stage.run()
    log = ProgressLog(metrics.parent, {})
    log.step(next(steps))
    Saved(folder / "state").write(stage, Position(0, log.state()))
    begun = Path(shutil.copytree(folder / "state", folder / "begun"))
    state = (folder / "state" / "now.safetensors").read_bytes()

    def resume() -> object:
        Saved(begun).restore(stage)  # else a case would depend on those before it
        saved = Saved(folder / "state")
        ProgressLog(folder, saved.position().log)
        saved.restore(stage)
        return next(stage.run(), None)

    def report() -> object:
        read_report(run)
        (run / "config.toml").write_bytes(whole["config.toml"])
        return table.cells(table.read_rows([run]))

    text = [mutate.in_bytes]
    return [
        Target("state", [state], folder / "state" / "now.safetensors", resume, [*text, *2 * [mutate.in_safetensors]]),
        Target("config", [whole["config.toml"]], run / "config.toml", lambda: read_run(run), [*text, mutate.in_toml]),
        Target(
            "recipe",
            [whole["config.toml"]],
            recipe,
            lambda: make_recipe(read_recipe(recipe)),
            [*text, mutate.in_toml, mutate.in_toml],
        ),
        Target(
            "metrics",
            [whole["metrics.jsonl"]],
            metrics,
            lambda: read_metrics(metrics.parent),
            [*text, mutate.in_json_lines],
        ),
        Target("report", [whole["report.json"]], run / "report.json", report, [*text, mutate.in_json]),
    ]


def _pages(folder: Path) -> list[Target]:
    """What a page and predictions read of a run folder; charts are slow, so that one case in sixteen draws them."""
    run = Path(shutil.copytree(folder / "run", folder / "page"))
    read_runs([run])  # makes the study

    def target(name: str, use: Callable[[], object], *mutations: mutate.Mutation) -> Target:
        path = run / name
        whole = _in_order(path.read_bytes()) if path.suffix == ".safetensors" else path.read_bytes()

        def read() -> object:
            try:
                return use()
            finally:
                if path.is_file() and not path.is_symlink():
                    path.write_bytes(whole)  # the next case damages another file

        return Target("page", [whole], path, read, [mutate.in_bytes, *mutations])

    def page() -> object:
        source = read_runs([run])[0]
        files = (run / "report.json", run / "metrics.jsonl", run / STUDY_FILE)
        content = b"".join(path.read_bytes() for path in files if path.is_file())
        return run_section(source) if zlib.crc32(content) % 16 == 0 else source

    return [
        target("report.json", page, mutate.in_json, mutate.in_json),
        target("metrics.jsonl", page, mutate.in_json_lines),
        target(STUDY_FILE, page, mutate.in_safetensors),
        target("inputs.json", lambda: Predictor(run), mutate.in_json, mutate.in_json),
    ]


def _in_order(file: bytes) -> bytes:
    """The safetensors file with its header in order; the library writes its fields in another order every time."""
    size = int.from_bytes(file[:8], "little")
    header = json.dumps(json.loads(file[8 : 8 + size]), sort_keys=True).encode()
    return len(header).to_bytes(8, "little") + header + file[8 + size :]


def _images(folder: Path) -> list[Target]:
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
        whole = (root / name).read_bytes()

        def read() -> object:
            try:
                return read_cifar(CIFAR10, folder)
            finally:
                if (root / name).is_file() and not (root / name).is_symlink():
                    (root / name).write_bytes(whole)  # the next case damages another file

        return Target("cifar", [whole], root / name, read, [mutate.in_bytes])

    image = Target("image", files, picture, lambda: decode(picture, 32), [mutate.in_bytes])
    return [cifar("data_batch_3"), cifar("batches.meta"), image]
