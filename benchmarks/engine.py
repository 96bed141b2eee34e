"""Time against FLOPs: the engine at several budgets beside the dense network in torch, ONNX Runtime and OpenVINO.

    python benchmarks/engine.py --network m_cifarnet --batch 1 64

One pinned thread, fp32, interleaved calls, medians of CPU time; ratios to the fastest dense runtime and to the
engine's own dense time. Every image of a batch has its own mask.
"""

import argparse
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.backbones.resnet18 import BLOCKS_PER_STAGE, WIDTHS, BasicBlock
from sanp.engine import compile
from sanp.record import record

Call = Callable[[], object]
LINE = (
    "{network:18} batch {batch:<3} {what:22} kept {kept:5.3f}  {ms_per_image:8.3f} ms/image  "
    "of best dense {of_best_dense:5.3f}  of own dense {of_own_dense:5.3f}"
)


class ImageNetResNet18(nn.Module):
    """ResNet-18 with the 7x7 stem and pooling of ImageNet."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, channels = [], WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for index in range(BLOCKS_PER_STAGE):
                blocks.append(BasicBlock(channels, width, stride=2 if stage > 0 and index == 0 else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.blocks(self.stem(x)).mean((2, 3)))


def images(count: int, size: int, seed: int = 0) -> Tensor:
    """Blobs of random brightness, contrast and colour: different enough for the gates to differ."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 6, 6, generator=generator)
    smooth = F.interpolate(coarse, size=(size, size), mode="bilinear")
    contrast = 0.3 + 2 * torch.rand(count, 1, 1, 1, generator=generator)
    return smooth * contrast + torch.randn(count, 3, 1, 1, generator=generator)


def network(name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    net = ImageNetResNet18() if name == "imagenet_resnet18" else sanp.backbones.BACKBONES[name](num_classes=10)
    net.train()
    with torch.no_grad():
        for step in range(3):  # batch norms with statistics of their own
            net(images(16, size, seed=step))
    return net.eval()


def dense_runtimes(net: nn.Module, x: Tensor, threads: int, wanted: list[str]) -> dict[str, Call]:
    """The dense network in every runtime that is installed."""
    calls: dict[str, Call] = {}
    if "eager" in wanted:
        calls["torch eager"] = lambda: net(x)
    if "compile" in wanted:
        fused = torch.compile(net)
        calls["torch.compile"] = lambda: fused(x)
    if "ort" in wanted or "openvino" in wanted:
        buffer = io.BytesIO()
        torch.onnx.export(net, (x,), buffer, dynamo=False, opset_version=17)
        model = buffer.getvalue()
        if "ort" in wanted:
            calls["ONNX Runtime"] = _onnx_runtime(model, x, threads)
        if "openvino" in wanted:
            calls["OpenVINO"] = _openvino(model, x, threads)
    return calls


def _onnx_runtime(model: bytes, x: Tensor, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)


def _openvino(model: bytes, x: Tensor, threads: int, precision: str = "f32") -> Call:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = openvino.compile_model(
        openvino.Core().read_model(io.BytesIO(model)), "CPU", settings
    ).create_infer_request()
    return lambda: request.infer([x.numpy()], share_inputs=True)


def medians(calls: dict[str, Call], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """Interleaved bursts; the first call of a burst warms the caches and is not counted."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, call in calls.items():
            call()
            for _ in range(3):
                start = clock()
                call()
                times[name].append(clock() - start)
    return {name: float(np.median(found)) for name, found in times.items()}


def measure(name: str, batch: int, arguments: argparse.Namespace) -> dict[str, object]:
    size = 224 if name.startswith("imagenet") else 32
    net, x = network(name, size), images(batch, size, seed=9)
    with torch.no_grad():
        calls = dense_runtimes(net, x, arguments.threads, arguments.runtimes)
        references = list(calls)
        calls["engine, dense"] = _engine(net, x, arguments.threads)
        kept = {"engine, dense": 1.0}
        for pruned in arguments.pruned:
            gated = sanp.gate(net, x[:1]).eval()
            gated.set_budget(1 - pruned, images(32 if size > 100 else 128, size, seed=5))
            label = f"engine, {pruned:.0%} pruned"
            calls[label] = _engine(gated, x, arguments.threads)
            kept[label] = _kept(gated, x)
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        times = medians(calls, arguments.seconds * len(calls), clock)
    best = min(times[reference] for reference in references)
    rows = [
        {
            "network": name, "batch": batch, "threads": arguments.threads, "what": label, "kept": kept.get(label, 1.0),
            "ms_per_image": 1e3 * seconds / batch, "of_best_dense": seconds / best,
            "of_own_dense": seconds / times["engine, dense"],
        }
        for label, seconds in times.items()
    ]  # fmt: skip
    for row in rows:
        print(LINE.format(**row), flush=True)
    return {"rows": rows}


def _engine(net: nn.Module, x: Tensor, threads: int) -> Call:
    fast = compile(net, x[:1], threads=threads)
    expected, given = net(x), fast(x)
    difference = (given - expected).abs().amax(1) / expected.abs().max()
    flipped = int((difference > 1e-4).sum())
    if flipped > len(x) // 20:
        raise SystemExit(f"{flipped} of {len(x)} outputs differ from the network's")
    return lambda: fast(x)


def _kept(gated: sanp.GatedNetwork, x: Tensor) -> float:
    with record(gated) as gates:
        gated(x)
    cost = gated.cost.per_sample({name: gate.decision for name, gate in gates.items()})
    return float(cost.mean()) / gated.dense_flops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", nargs="+", default=["m_cifarnet", "resnet18", "vgg19"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--pruned", nargs="*", type=float, default=[0.34, 0.5, 0.67])
    parser.add_argument("--runtimes", nargs="*", default=["eager", "compile", "ort", "openvino"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each thing measured")
    parser.add_argument("--core", type=int, default=None, help="pin to this core")
    parser.add_argument("--json", type=Path, default=None, help="append the rows to this file")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    torch.set_num_threads(arguments.threads)
    for name in arguments.network:
        for batch in arguments.batch:
            result = measure(name, batch, arguments)
            if arguments.json is not None:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
