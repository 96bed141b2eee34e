"""A crowd at the engine: threads that call compiled networks while others turn their budgets; every answer is compared.

``python -m tests.tools.engine_load 600 8``: so many seconds, so many threads that call. One more thread sets another
budget of each network, compiles it again, compares it with torch, and puts it in the place of the one that is called.
Another turns the budget of a compiled network that has a range of them. An answer must be, to the bit, the one that the
same compiled network gave alone, with the range at one of its budgets.
"""

import random
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from itertools import count, islice

import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SlowWarning
from sanp.engine.agreement import disagreement
from sanp.engine.compiled import Engine
from sanp.gating.network import GatedNetwork
from tests.engine import test_turning
from tests.engine.networks import Inverted, Residual, gated_network, trained_like

IMAGES, SIZES = 12, (1, 1, 2, 5)
"""images of a network, and the sizes of the batches that are called"""
PLACES = [(first, size) for size in sorted(set(SIZES)) for first in range(IMAGES - size + 1)]
"""first image and size of every such batch"""
BUDGETS = ("75%", "40%", "60%", "50%", "70%", "55%")


class PartlyTorch(nn.Module):
    """Two convolutions with running sums between them, which run in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Features."""
        y: Tensor = self.second(self.first(x).cumsum(3).relu())
        return y


@dataclass(frozen=True)
class Served:
    """A compiled network, and what it answers to every batch when nobody else calls it."""

    fast: Engine
    images: Tensor
    answers: dict[tuple[int, int], list[Tensor]]
    """by first image and size of the batch; of a network with a range of budgets, one for each budget"""


def serve(gated: GatedNetwork, images: Tensor) -> Served:
    """Compiles the network at its present budget; an error if it is not what torch gives."""
    fast = sanp.compile(gated, images[:1], tune=False, threads=2)
    wrong = disagreement(fast, gated, images)
    if wrong is not None:
        raise AssertionError(wrong)
    return Served(fast, images, {place: [fast(_batch(images, place))] for place in PLACES})


def serve_range() -> Served:
    """Compiles a network with a range of budgets; an error if it is not what torch gives at each of them."""
    gated, images = test_turning.dialled(), test_turning.IMAGES
    fast = sanp.compile(gated, images[:1], tune=False, threads=2)
    answers: dict[tuple[int, int], list[Tensor]] = {place: [] for place in PLACES}
    for budget in test_turning.BUDGETS:
        fast.set_budget(budget)
        torch.testing.assert_close(fast(images), test_turning.expected(gated, budget), rtol=1e-4, atol=1e-5)
        for place, found in answers.items():
            found.append(fast(_batch(images, place)))
    return Served(fast, images, answers)


def _batch(images: Tensor, place: tuple[int, int]) -> Tensor:
    return images[place[0] : place[0] + place[1]]


class Load:
    """What the threads share. ``networks`` are those that are called."""

    def __init__(self, networks: list[GatedNetwork]) -> None:
        self.networks = networks
        self.images = [_images(number) for number in range(len(networks))]
        self.served = [serve(gated, images) for gated, images in zip(networks, self.images, strict=True)]
        self.served.append(serve_range())
        self.over = threading.Event()
        self.calls, self.turns, self.range_turns = 0, 0, 0
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def call(self, seed: int) -> None:
        """Calls compiled networks until the end, or until an answer is wrong."""
        dice, done = random.Random(seed), 0
        while not self.over.is_set():
            served = dice.choice(self.served)
            size = dice.choice(SIZES)
            place = dice.randrange(IMAGES - size + 1), size
            try:
                given = self._answer(served, _batch(served.images, place), dice)
            except Exception as error:  # whatever it is, it is not an answer
                self._stop(f"{type(error).__name__}: {error}")
                return
            done += 1
            if not any(torch.equal(given, answer) for answer in served.answers[place]):
                self._stop(f"another answer to {size} images from {place[0]} on, by thread {seed}")
        with self._lock:
            self.calls += done

    @staticmethod
    def _answer(served: Served, batch: Tensor, dice: random.Random) -> Tensor:
        """The answer by one of the ways to call: a tensor, one whose numbers lie in another order, an array."""
        kind = dice.randrange(3)
        if kind == 0:
            given = served.fast(batch)
        elif kind == 1:
            given = served.fast(batch.contiguous(memory_format=torch.channels_last))
        else:
            given = torch.from_numpy(served.fast(batch.numpy()))
        assert isinstance(given, Tensor)
        return given

    def turn(self) -> None:
        """Sets one budget after another and serves the network that comes of it, until the end."""
        for number in count():
            place = number % len(self.networks)
            try:
                budget = BUDGETS[number % len(BUDGETS)]
                self.networks[place].set_budget(budget, self.images[place])
                self.served[place] = serve(self.networks[place], self.images[place])
            except Exception as error:
                self._stop(f"turned to {budget}: {type(error).__name__}: {error}")
            if self.over.is_set():
                return
            self.turns += 1

    def turn_range(self) -> None:
        """Sets budgets of the compiled network that has a range of them, until the end."""
        dice, fast = random.Random(0), self.served[-1].fast
        while not self.over.wait(0.001):
            fast.set_budget(dice.choice(test_turning.BUDGETS))
            self.range_turns += 1

    def _stop(self, why: str) -> None:
        self.wrong.append(why)
        self.over.set()


def _images(seed: int) -> Tensor:
    return torch.randn(IMAGES, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def networks() -> list[GatedNetwork]:
    """Three gated networks of different kinds."""
    torch.manual_seed(0)
    made = (trained_like(net, (3, 16, 16)) for net in (Residual(), Inverted(), PartlyTorch()))
    return [gated_network(net, torch.zeros(1, 3, 16, 16), seed=seed) for seed, net in enumerate(made)]


def run(seconds: float, threads: int) -> Load:
    """Calls and turns for so many seconds; what came of it."""
    load = Load(networks())
    work = [threading.Thread(target=load.call, args=(seed,)) for seed in range(threads)]
    work += [threading.Thread(target=load.turn), threading.Thread(target=load.turn_range)]
    for thread in work:
        thread.start()
    load.over.wait(seconds)
    load.over.set()
    for thread in work:
        thread.join()
    return load


def main(seconds: float, threads: int) -> None:
    """Prints what was done, or what went wrong."""
    warnings.simplefilter("ignore", SlowWarning)  # one network is meant to run partly in torch
    start = time.monotonic()
    load = run(seconds, threads)
    if load.wrong:
        sys.exit("; ".join(islice(load.wrong, 3)))
    print(  # noqa: T201
        f"{load.calls} calls by {threads} threads in {time.monotonic() - start:.0f} s, {load.turns} budgets turned by "
        f"compiling, {load.range_turns} in the compiled network: every answer right"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(float(sys.argv[1]), int(sys.argv[2]))
