"""A compiled network keeps to the network's cap, by the same rule: the same channels are closed."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import sanp
from sanp.core.errors import SlowWarning
from sanp.engine.capping import Capping, NativeCap
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.steps import TorchStep, TorchUnit
from tests.conftest import SmallNet
from tests.engine.networks import EXAMPLES, assert_same, gated_network, trained_like
from tests.gating.test_cap import costs, images_of, varied
from tests.networks.parts import Net, block, conv


def capped(name: str, **settings: object) -> tuple[sanp.GatedNetwork, Tensor]:
    """A network under a cap that most of its images meet, and images."""
    gated = varied(name, **settings)
    images = images_of(gated.origin.input_shapes[0][1:], 23)
    free = costs(gated, images)
    gated.set_max_flops(0.5 * float(free.max() + free.min()), images)
    assert bool((costs(gated, images) < free).any())
    return gated, images


def assert_decides_alike(fast: sanp.engine.Engine, gated: sanp.GatedNetwork, images: Tensor) -> None:
    """The same channels, and no image above the cap."""
    found = fast.run_recorded(images)
    assert found is not None and gated.cap is not None
    with torch.no_grad(), sanp.record(gated) as gates:
        gated(images)
    assert all(torch.equal(decision, gates[name].decision) for name, decision in found[1].items())
    spent = gated.cost.per_sample({name: decision.double() for name, decision in found[1].items()})
    assert float(spent.max()) <= gated.cap.limit


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_engine_closes_the_channels_that_the_network_closes(name: str, threads: int) -> None:
    gated, images = capped(name)
    fast = sanp.compile(gated, images[:1], threads=threads, tune=False)
    assert fast.steps
    assert_decides_alike(fast, gated, images)
    for part in (images, images[:1], images[-1:], images[3:8]):
        assert_same(fast, gated, part)


def test_channels_in_groups_and_of_a_fixed_number() -> None:
    gated, images = capped("residual", group=4)
    assert_decides_alike(sanp.compile(gated, images[:1], tune=False), gated, images)
    method = sanp.methods.METHODS["fixed_k"]
    fixed = method.gate(trained_like(SmallNet(), (3, 16, 16)), images_of((3, 16, 16), 1), spm=sanp.SPMConfig())
    images = images_of((3, 16, 16), 9)
    fixed.eval().set_budget("60%", images)
    fixed.set_max_flops("50%", images)
    fast = sanp.compile(fixed, images[:1], tune=False)
    assert_decides_alike(fast, fixed, images)
    assert_same(fast, fixed, images)


def test_budgets_are_turned_under_the_cap() -> None:
    gated, images = capped("small")
    with gated.uncapped():
        gated.set_budget("30%..60%", images)
    gated.set_max_flops("45%", images)
    fast = sanp.compile(gated, images[:1], tune=False)
    for budget in ("30%", "40%", "45%"):
        fast.set_budget(budget)
        gated.set_budget(budget)
        assert_decides_alike(fast, gated, images)
        assert_same(fast, gated, images)
    each = fast(images, budget=["30%" if row % 2 else "45%" for row in range(23)])
    torch.testing.assert_close(each[1::2], fast(images, budget="30%")[1::2])
    for turned in (fast, gated):
        with pytest.raises(sanp.SanpError, match=r"max_flops.* below the budget of 60.0%"):
            turned.set_budget("60%")


def test_a_network_in_stretches_spends_one_cap() -> None:
    """An operator that only torch knows stands between two native programs."""
    net = Net(
        lambda n, x: n.last(torch.erfinv(n.second(n.first(x)).clamp(-0.5, 0.5))).mean((2, 3)),
        first=block(3, 12),
        second=block(12, 12),
        last=conv(12, 8),
    )
    images = images_of((3, 10, 10), 17)
    gated = gated_network(trained_like(net, (3, 10, 10)), images[:1])
    free = costs(gated, images)
    gated.set_max_flops(0.5 * float(free.max() + free.min()), images)
    fast = sanp.compile(gated, images[:1], tune=False)
    assert len(fast.steps) == 3
    assert_decides_alike(fast, gated, images)
    assert_same(fast, gated, images)


def test_without_the_native_library_torch_keeps_to_it(no_library: None) -> None:
    gated, images = capped("small")
    with pytest.warns(UserWarning, match="SANP_NATIVE is off"):
        fast = sanp.compile(gated, images[:1])
    assert_same(fast, gated, images)
    with torch.no_grad(), gated.uncapped():
        assert not torch.allclose(fast(images), gated(images))


def test_a_gate_in_torch_cannot_be_counted_natively() -> None:
    gated, images = capped("small")
    fast = sanp.compile(gated, images[:1], tune=False)
    unit = TorchUnit((), next(iter(gated.layers.values())))
    with pytest.raises(Unsupported, match="some of whose gates run in torch"):
        Capping(gated.cap, (*fast.steps, TorchStep((unit,))))  # type: ignore[arg-type]


def test_a_network_that_runs_in_torch_as_a_whole_keeps_to_it() -> None:
    net = Net(
        lambda n, x: n.last(n.first(x) if x.mean() < 1e9 else n.first(-x)).mean((2, 3)),
        first=block(3, 12),
        last=conv(12, 8),
    )
    images = images_of((3, 10, 10), 9)
    gated = gated_network(net.eval(), images[:1])
    free = costs(gated, images)
    gated.set_max_flops(0.5 * float(free.max() + free.min()), images)
    with pytest.warns(SlowWarning):
        fast = sanp.compile(gated, images[:1], tune=False)
    assert fast.steps == () and torch.equal(fast(images), gated(images).detach())
    with gated.uncapped():
        assert not torch.equal(fast(images), gated(images).detach())


def test_samples_that_are_not_finite_have_the_cap_too() -> None:
    gated, images = capped("small")
    fast = sanp.compile(gated, images[:1], tune=False)
    images = images.clone()
    images[5, 0, 0, 0] = torch.inf
    with torch.no_grad():
        wanted = gated(images)
    torch.testing.assert_close(fast(images), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_many_threads_share_a_capped_engine() -> None:
    gated, images = capped("residual")
    fast = sanp.compile(gated, images[:1], tune=False)
    wanted, wrong = fast(images), []

    def call() -> None:
        sizes = range(1, 23)
        wrong.extend(size for size in sizes if not torch.equal(fast(images[:size]), wanted[:size]))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_later_changes_of_the_network_do_not_reach_the_engine() -> None:
    gated, images = capped("small")
    fast = sanp.compile(gated, images[:1], tune=False)
    before = fast(images)
    gated.set_max_flops(None)
    assert torch.equal(fast(images), before) and fast(images[:0]).shape == (0, 4)


def test_a_file_of_onnx_keeps_none(tmp_path: Path) -> None:
    gated, images = capped("small")
    with pytest.raises(sanp.SanpError, match="no file can keep a cap"):
        sanp.export(gated, tmp_path / "net.onnx", images[:1])


@pytest.mark.parametrize(
    "code",
    [
        [],
        [10, 1, 1],
        [10, 1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4],  # no reserve
        [10, 1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 1, 1, 4, 1],  # a gate that is not there
        [10, 1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4, 1, 1],  # a number too many
        [10, 1, 1, 1 << 40, 1 << 40, 1 << 40, 3, 3, 0, 0, 4, 1, 0, 1, 4, 1],  # more than can be counted
        [10, 1, 1, -1, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4, 1],
    ],
)
def test_numbers_that_make_no_cap_are_refused(code: list[int]) -> None:
    with pytest.raises(sanp.SanpError, match="refused"):
        NativeCap(code)
    NativeCap([10, 1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4, 1])


def test_places_outside_the_cap_are_refused() -> None:
    gated, images = capped("small")
    fast = sanp.compile(gated, images[:1], tune=False)
    step = fast.only
    assert step is not None
    cap = NativeCap([10, 1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4, 1])
    x, y = images.numpy(), np.empty((23, 4), np.float32)
    counts, places = np.zeros((23, 1), np.int32), np.array([0, 1, 2], np.int32)
    with pytest.raises(sanp.SanpError, match="no place for a gate"):
        step.program.run_at(
            [x.ctypes.data],
            [y.ctypes.data],
            23,
            1,
            cap=cap.handle,
            counts=counts.ctypes.data,
            places=places.ctypes.data,
        )
