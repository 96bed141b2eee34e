"""What the input takes of a training step: a batch of augmented 32x32 images against a step of M-CifarNet."""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from sanp.backbones import BACKBONES
from sanp.data import Augment, Batches, Split

BAR = 0.05
"""The largest share of a step that the input may take."""


def median_time(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="training steps to time; the input is timed 50 times")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    split = Split(images, torch.randint(10, (50_000,), generator=generator))
    network = BACKBONES["m_cifarnet"](num_classes=10).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    augments = {
        "none": None,
        "flip and translate": Augment(flip=True, flip_alternates=True, translate=2),
        "flip, translate and cutout": Augment(flip=True, translate=4, cutout=12),
    }
    batches = {
        name: Batches(split, options.batch, mean=(0.5,) * 3, std=(0.25,) * 3, augment=augment, shuffle=True)
        for name, augment in augments.items()
    }
    x, y = next(iter(batches["none"]))

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(network(x), y).backward()
        optimizer.step()

    step()
    step_time = median_time(step, options.steps)
    print(f"training step of M-CifarNet, batch {options.batch}, {options.threads} thread(s): {step_time * 1e3:.1f} ms")
    for name, given in batches.items():
        running = iter(given)
        next(running)
        input_time = median_time(lambda running=running: next(running), min(50, len(given) - 1))
        share = input_time / step_time
        verdict = "ok" if share < BAR else f"over {BAR:.0%}"
        print(f"input, augment {name}: {input_time * 1e3:.2f} ms, {share:.2%} of the step, {verdict}")


if __name__ == "__main__":
    main()
