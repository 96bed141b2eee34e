"""What cannot be used is refused with what was given, what is wanted and what to do: one table."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sanp
import sanp.engine
from sanp.experiments.recipe import make_recipe
from sanp.experiments.run_folder import read_report, read_run
from tests.conftest import SmallNet, TwoConvs, coloured_squares

IMAGES, LABELS = coloured_squares(32)
NAN = IMAGES.clone()
NAN[5, 0, 0, 0] = float("nan")
EXAMPLE = torch.zeros(1, 3, 8, 8)
CONFIG = sanp.FitConfig(warmup_epochs=1, joint_epochs=1, precision="fp32", distill=0.0)


class FixedSize(nn.Module):
    """Takes 8x8 images only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.classifier = nn.Linear(8 * 64, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(torch.relu(self.conv(x)).flatten(1))
        return y


class NormAtTheEnd(nn.Module):
    """Batch norm of one value a channel and image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.classifier = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.norm(torch.relu(self.conv(x)).mean((2, 3))))
        return y


def gated(net: nn.Module | None = None) -> sanp.GatedNetwork:
    return sanp.gate(net or SmallNet(width=4), EXAMPLE)


def fit(*batches: Any, budget: object = "50%", net: nn.Module | None = None) -> None:
    sanp.fit(gated(net), list(batches), budget, config=CONFIG)


def evaluate(*batches: Any) -> None:
    sanp.evaluate(gated(), list(batches))


def split(images: Tensor, labels: Tensor) -> sanp.data.Split:
    return sanp.data.Split(images.mul(20).clamp(0, 255).to(torch.uint8), labels)


def dataset(labels: Tensor) -> sanp.data.Dataset:
    whole = split(IMAGES, labels)
    return sanp.data.Dataset(
        name="mine",
        train=whole,
        test=whole,
        classes=("a", "b", "c"),
        mean=(0, 0, 0),
        std=(1, 1, 1),
        augment=sanp.data.Augment(),
    )


def batches(given: Any, mean: Any = (0, 0, 0), augment: Any = None) -> sanp.data.Batches:
    return sanp.data.Batches(given, 8, mean=mean, std=(1, 1, 1), augment=augment)


Case = tuple[str, Callable[[], object], str]
BUDGETS: list[Case] = [
    *((f"budget {given!r}", lambda given=given: fit((IMAGES, LABELS), budget=given), words)  # type: ignore[misc]
      for given, words in (
          (0, "not above zero"), (-1, "not above zero"), ("-5%", "cannot be read"), ("0%", "not above zero"),
          ("150%", "more than the whole network"), (1.5, "more than the whole network"), ("35", "cannot be read"),
          (float("nan"), "not above zero"), (float("inf"), "not above zero"), ("nan", "cannot be read"),
          ("0.1%", "give at least that"), (None, "NoneType"), (True, "is a bool"), ("900G", "more than the dense"),
          ("2.5ms", "no latency table"))),
    *((f"dial {given!r}", lambda given=given: gated().set_budget(given, IMAGES), words)  # type: ignore[misc]
      for given, words in ((0, "not above zero"), ("35", "cannot be read"), ("0.1%", "give at least that"))),
]  # fmt: skip
DATA: list[Case] = [
    ("no batches", lambda: fit(), "loader is empty: give at least one batch"),
    ("a batch of none", lambda: fit((IMAGES[:0], LABELS[:0])), r"batch of shape \(0, 3, 8, 8\): give at least one"),
    ("no pairs", lambda: fit(IMAGES), "give pairs of images and targets"),
    ("label above", lambda: fit((IMAGES, LABELS + 9)), r"labels go from 9 to 12.*4 classes: give labels from 0 to 3"),
    ("label below", lambda: fit((IMAGES, LABELS - 1)), "labels go from -1"),
    ("float labels", lambda: fit((IMAGES, LABELS.float())), "labels are float32"),
    ("few labels", lambda: fit((IMAGES, LABELS[:5])), r"labels are int64 \(5,\) for 32 images"),
    ("NaN images", lambda: fit((NAN, LABELS)), "images of this batch hold NaN"),
    ("bytes", lambda: fit((IMAGES.to(torch.uint8), LABELS)), "does not run on images of uint8"),
    ("grey", lambda: fit((IMAGES[:, :1], LABELS)), r"does not run on images of float32 \(32, 1, 8, 8\)"),
    ("no batch", lambda: fit((IMAGES[0], LABELS)), "does not run on images of"),
    ("size", lambda: fit((torch.zeros(4, 3, 16, 16), LABELS[:4]), net=FixedSize()), r"\(4, 3, 16, 16\)"),
    ("one image", lambda: fit((IMAGES[:1], LABELS[:1]), net=NormAtTheEnd()), "give at least 2 images a batch"),
    ("evaluate nothing", lambda: evaluate(), "give at least one batch"),
    ("evaluate none", lambda: evaluate((IMAGES[:0], LABELS[:0])), "at least one image a batch"),
    ("evaluate grey", lambda: evaluate((IMAGES[:, :1], LABELS)), "does not run on images of"),
    ("evaluate NaN", lambda: evaluate((NAN, LABELS)), "not finite: check the images for NaN"),
    ("evaluate labels", lambda: evaluate((IMAGES, LABELS + 9)), "give labels from 0 to 3"),
    ("evaluate a list", lambda: evaluate((IMAGES, LABELS.tolist())), "a list as labels: give a tensor"),
    ("evaluate maps", lambda: sanp.evaluate(nn.Conv2d(3, 4, 3), [(IMAGES, LABELS)]), "a class for each of its places"),
    ("dial nothing", lambda: gated().set_budget("50%", []), "given no images"),
    ("dial none", lambda: gated().set_budget("50%", IMAGES[:0]), "given no images"),
    ("dial NaN", lambda: gated().set_budget("50%", NAN), "hold NaN"),
    ("dial grey", lambda: gated().set_budget("50%", IMAGES[:, :1]), "does not run on images of"),
    ("empty split", lambda: split(IMAGES[:0], LABELS[:0]), "the split is empty"),
    ("one class", lambda: split(IMAGES, LABELS * 0), "at least two classes"),
    ("label of no class", lambda: dataset(LABELS), "labels go from 0 to 2"),
    ("unknown data", lambda: sanp.data.load("cifar"), "did you mean cifar10"),
    ("no data limit", lambda: sanp.data.load("digits", limit=0), "limit is 0"),
]
NETWORKS: list[Case] = [
    ("no convolution", lambda: sanp.gate(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), EXAMPLE), "no convolution"),
    ("no network", lambda: sanp.gate("resnet18", EXAMPLE), r"give a network, a torch\.nn\.Module"),
    ("grey example", lambda: sanp.gate(SmallNet(), EXAMPLE[:, :1]), "does not run on the example_input"),
    ("large example", lambda: sanp.gate(FixedSize(), torch.zeros(1, 3, 16, 16)), "does not run on the example_input"),
    ("empty example", lambda: sanp.gate(SmallNet(), EXAMPLE[:0]), "is empty: give at least one sample"),
    ("no tensor", lambda: sanp.gate(SmallNet(), "x"), "holds no tensor"),
    ("gated twice", lambda: sanp.gate(gated(), EXAMPLE), "gated already"),
    ("skip unknown", lambda: sanp.gate(SmallNet(), EXAMPLE, skip=["featurs.0"]), r"did you mean features\.0"),
    ("spm as dict", lambda: sanp.gate(SmallNet(), EXAMPLE, spm={"noise": 1}), r"give a sanp\.SPMConfig"),  # type: ignore[arg-type]
    ("fit ungated", lambda: sanp.fit(SmallNet(), [(IMAGES, LABELS)], "50%"), r"sanp\.gate"),  # type: ignore[arg-type]
    ("evaluate a number", lambda: sanp.evaluate(3, [(IMAGES, LABELS)]), "give a network"),  # type: ignore[arg-type]
    ("momentum", lambda: sanp.FitConfig(momentum=0), "give nesterov=False"),
    ("no steps", lambda: sanp.Budget(gated(), "50%", steps=0), "steps is 0: give the number of steps to come"),
    ("threads", lambda: sanp.compile(gated(), EXAMPLE, threads=True), "a number from 1 to 1024"),
    ("save a dict", lambda: sanp.save({}, "x.safetensors"), "give a network"),  # type: ignore[arg-type]
    ("unknown backbone", lambda: sanp.backbones.build("resnet", num_classes=10), "did you mean resnet50 or resnet18"),
    ("one class network", lambda: sanp.backbones.build("vgg19", num_classes=1), "at least 2"),
    ("small images", lambda: sanp.backbones.build("vgg19", num_classes=10, image_size=8), "32x32 and larger"),
]
SETTINGS: list[Case] = [
    ("lr NaN", lambda: sanp.FitConfig(lr=float("nan")), "lr is nan: give a finite number"),
    ("lr text", lambda: sanp.FitConfig(lr="fast"), "lr is 'fast': give a finite number"),  # type: ignore[arg-type]
    ("momentum", lambda: sanp.FitConfig(momentum=2.0), "momentum in"),
    ("half an epoch", lambda: sanp.FitConfig(joint_epochs=1.5), "give a whole number"),  # type: ignore[arg-type]
    ("schedule", lambda: sanp.FitConfig(schedule="cos"), "did you mean cosine"),  # type: ignore[arg-type]
    ("noise NaN", lambda: sanp.SPMConfig(noise=float("nan")), "give a finite number"),
    ("penalty", lambda: sanp.ObjectiveConfig(penalty="flop"), "did you mean flops"),  # type: ignore[arg-type]
    ("strength NaN", lambda: sanp.ControllerConfig(strength=float("nan")), "strength"),
    ("batch of one", lambda: make_recipe({"batch_size": 1}), "at least 2 images"),
    ("seed", lambda: make_recipe({"seed": 2**70}), "63 bits"),
    ("threads", lambda: make_recipe({"threads": 10**9}), "at most 1024"),
    ("unknown method", lambda: make_recipe({"method": "fbss"}), "did you mean fbs"),
    ("unknown setting", lambda: make_recipe({"fit": {"learning": 1}}), "unknown setting 'learning'"),
    ("another version", lambda: make_recipe({"format": 7}), "format 7, this sanp reads 1"),
]
X: Any = "x"
"""what is wanted nowhere below"""
KINDS: list[Case] = [
    ("build: classes", lambda: sanp.backbones.build("vgg19", num_classes=X), "num_classes is 'x', a str: give a whole"),
    ("build: no whole number", lambda: sanp.backbones.build("vgg19", num_classes=2.5), "2.5, a float"),  # type: ignore[arg-type]
    ("build: size", lambda: sanp.backbones.build("vgg19", num_classes=9, image_size=X), "image_size is 'x'"),
    ("build: name", lambda: sanp.backbones.build([], num_classes=9), "give one of m_cifarnet"),  # type: ignore[arg-type]
    ("method_named", lambda: sanp.methods.method_named([]), "a list: give a name"),  # type: ignore[arg-type]
    ("gate: skip", lambda: sanp.gate(SmallNet(), EXAMPLE, skip=3), "give a list of names or patterns"),  # type: ignore[arg-type]
    ("gate: shortcuts", lambda: sanp.gate(SmallNet(), EXAMPLE, shortcuts=X), "give true or false"),
    ("record", lambda: sanp.record(X), "'x' is a str: give a network"),
    ("compile", lambda: sanp.compile(X, EXAMPLE), "'x' is a str: give a network"),
    ("compile: example", lambda: sanp.compile(gated(), X), "holds no tensor"),
    ("latency_table", lambda: sanp.engine.latency_table(X, IMAGES), r"give what sanp\.gate returned"),
    ("latency_table: images", lambda: sanp.engine.latency_table(gated(), X), "give a tensor of images"),
    ("export", lambda: sanp.export(X, "x.onnx", EXAMPLE), "'x' is a str: give a network"),
    ("export: path", lambda: sanp.export(gated(), 3, EXAMPLE), "the path is 3, a int"),
    ("export: example", lambda: sanp.export(gated(), "x.onnx", X), "must be one tensor"),
    ("save: path", lambda: sanp.save(gated(), 3), "the path is 3, a int"),  # type: ignore[arg-type]
    ("save: dtype", lambda: sanp.save(gated(), "x.safetensors", dtype=torch.int8), "give a kind of floating point"),
    ("load: path", lambda: sanp.load(None, SmallNet()), "the path is None"),  # type: ignore[arg-type]
    ("evaluate: loader", lambda: sanp.evaluate(gated(), 3), "loader is 3, a int: give batches"),  # type: ignore[arg-type]
    ("fit: loader", lambda: sanp.fit(gated(), 3, "50%"), "give a loader that knows"),  # type: ignore[arg-type]
    ("fit: config", lambda: sanp.fit(gated(), [], "50%", config={"lr": 1}), r"a dict: give a sanp\.FitConfig"),  # type: ignore[arg-type]
    ("fit: loss", lambda: sanp.fit(gated(), [], "50%", loss=X), "give a function of output and target"),
    ("fit: teacher", lambda: sanp.fit(gated(), [], "50%", teacher=X), "teacher is 'x', a str: give a network"),
    ("Budget: network", lambda: sanp.Budget(X, "50%"), "give Budget what sanp.gate returned"),
    ("Budget: objective", lambda: sanp.Budget(gated(), "50%", objective=X), r"give a sanp\.ObjectiveConfig"),
    ("Budget: controller", lambda: sanp.Budget(gated(), "50%", controller=X), r"give a sanp\.ControllerConfig"),
    ("Budget: gates", lambda: sanp.Budget(gated(), "50%").loss(X), r"give what .with sanp\.record"),
    ("Budget: no gates", lambda: sanp.Budget(gated(), "50%").loss({}), "no gates were recorded"),
    ("dial: images", lambda: gated().set_budget("50%", 3), "images is 3, a int"),  # type: ignore[arg-type]
    ("dial: a batch", lambda: gated().set_budget("50%", [X]), "give a tensor of images"),
    ("load data", lambda: sanp.data.load(3), "unknown data set 3"),  # type: ignore[arg-type]
    ("load data: root", lambda: sanp.data.load("cifar10", root=3), "the path is 3"),  # type: ignore[arg-type]
    ("load data: size", lambda: sanp.data.load("digits", size=X), "give a number of pixels"),
    ("load data: limit", lambda: sanp.data.load("digits", limit=X), "give how many"),
    ("Split", lambda: sanp.data.Split(X, LABELS), "give a uint8 tensor"),
    ("Split: grey and alpha", lambda: sanp.data.Split(torch.zeros(2, 2, 8, 8).byte(), LABELS[:2]), "1 or 3 channels"),
    ("Batches", lambda: batches(X), r"split is a str: give a sanp\.data\.Split"),
    ("Batches: mean", lambda: batches(split(IMAGES, LABELS), mean=3), "mean is 3, a int"),
    ("Batches: means", lambda: batches(split(IMAGES, LABELS), mean="abc"), "a value of mean is 'a'"),
    ("Batches: augment", lambda: batches(split(IMAGES, LABELS), augment=X), r"give a sanp\.data\.Augment"),
    ("Dataset: train", lambda: replace(dataset(LABELS % 3), train=X), "train is a str"),
    ("Dataset: augment", lambda: replace(dataset(LABELS % 3), augment=X), r"give a sanp\.data\.Augment"),
    ("Dataset: classes", lambda: replace(dataset(LABELS % 3), classes=3), "classes is 3"),  # type: ignore[arg-type]
    ("Augment", lambda: sanp.data.Augment(translate=X), "give a number of pixels"),
    ("get data", lambda: sanp.data.get(3), "unknown data set 3"),  # type: ignore[arg-type]
    ("list data", lambda: sanp.data.describe(3), "the path is 3"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("call", "words"),
    [pytest.param(call, words, id=name) for name, call, words in BUDGETS + DATA + NETWORKS + SETTINGS + KINDS],
)
def test_it_is_refused_with_what_to_do(call: Callable[[], object], words: str) -> None:
    with pytest.raises(sanp.SanpError, match=words):
        call()


def test_files_of_another_version_or_network_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("format = 2\n")
    with pytest.raises(sanp.SanpError, match="format 2, this sanp reads 1: use the sanp that wrote it"):
        read_run(tmp_path)
    (tmp_path / "report.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(sanp.SanpError, match="format 2, this sanp reads 1"):
        read_report(tmp_path)
    sanp.save(gated(), tmp_path / "net.safetensors")
    for net, words in (
        (TwoConvs(), "give the network it was saved from"),
        (SmallNet(7, width=4), "as many classes"),
        (gated(), "gated already"),
        (None, "give a network"),
    ):
        with pytest.raises(sanp.SanpError, match=words):
            sanp.load(tmp_path / "net.safetensors", net)  # type: ignore[arg-type]
