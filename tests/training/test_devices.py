"""Networks on another device: nothing is made on the wrong one. The device is a stand-in that needs no hardware."""

import pytest
import torch
from torch import Tensor

import sanp
from sanp.core import devices
from sanp.core.devices import chosen_device, exact_on
from sanp.gating.gating import planned_cost
from tests.conftest import SmallNet
from tests.tools import other_device
from tests.tools.other_device import NAME, OtherDevice, There

Batches = list[tuple[Tensor, Tensor]]
QUICK = sanp.FitConfig(warmup_epochs=1, norm_batches=1, calibrate_images=16, distill=0.0, precision="fp32")


def test_the_other_device_refuses_mixtures_and_computes_the_same() -> None:
    x = torch.randn(3, 4)
    with OtherDevice():
        there = x.to(NAME)
        assert isinstance(there, There) and there.device.type == NAME
        with pytest.raises(RuntimeError, match="mixes devices"):
            _ = there + x
        with pytest.raises(TypeError, match="float64"):
            there.double()
        assert torch.equal((there @ there.T).to("cpu"), x @ x.T)
        assert torch.equal(there[torch.tensor([2, 0])].to("cpu"), x[[2, 0]])  # as a GPU's are, by indices of the CPU
        assert torch.tensor([1, 2], device=NAME).tolist() == [1, 2]


def carried_out(loader: Batches, device: str) -> tuple[sanp.GatedNetwork, list[float]]:
    """A step or two of every stage; the network and what was measured."""
    torch.manual_seed(0)
    net = SmallNet(width=8).to(device)
    trained = sanp.pretrain(net, loader, epochs=1, config=QUICK, progress=False)
    planned_cost(net, loader[0][0])
    gated = sanp.gate(net, loader[0][0][:1])  # images of the CPU are moved
    history = sanp.fit(gated, loader, "60%", epochs=1, config=QUICK, progress=False)
    report = sanp.evaluate(gated, loader[:1])
    reached = gated.set_budget("50%", [loader[0][0]], force=True)
    return gated, [trained[0].loss, *(epoch.loss for epoch in history), report.accuracy, report.kept, reached]


def test_training_gating_and_evaluation_stay_on_the_network_s_device(
    squares_loader: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [(x[:16], y[:16]) for x, y in squares_loader[:2]]
    with other_device.installed(monkeypatch):
        gated, there = carried_out(few, NAME)
        assert all(isinstance(parameter.data, There) for parameter in gated.parameters())
    assert there == pytest.approx(carried_out(few, "cpu")[1], rel=1e-3)


def test_a_loop_of_one_s_own_runs_there(squares_loader: Batches) -> None:
    with OtherDevice():
        gated = sanp.gate(SmallNet().to(NAME), squares_loader[0][0][:1])
        optimizer = torch.optim.Adam(gated.parameter_groups(lr=3e-3, steps=8))
        budget = sanp.Budget(gated, "50%", steps=8)
        for x, y in squares_loader[:2]:
            with sanp.record(gated) as gates:
                loss = torch.nn.functional.cross_entropy(gated(x.to(NAME)), y.to(NAME))
            loss = loss + budget.loss(gates)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert isinstance(gated.layers["features.0"].spm.saliency.w1.weight.grad, There)  # type: ignore[union-attr]


def test_auto_takes_what_is_there_and_a_missing_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices.torch.backends.mps, "is_available", lambda: False)
    assert chosen_device("auto") == torch.device("cpu")
    with pytest.raises(sanp.SanpError, match="device cuda is not here"):
        chosen_device("cuda")
    with pytest.raises(sanp.SanpError, match="unknown device 'gpu'"):
        chosen_device("gpu")
    monkeypatch.setattr(devices.torch.backends.mps, "is_available", lambda: True)
    assert chosen_device("auto") == torch.device("mps")
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: True)
    assert chosen_device("auto") == torch.device("cuda")


def test_fit_takes_a_device_and_a_compiled_network(squares_loader: Batches) -> None:
    gated = sanp.gate(SmallNet(), squares_loader[0][0])
    compiled = torch.compile(gated, backend="eager")
    sanp.fit(compiled, squares_loader, "60%", epochs=1, config=QUICK, device="cpu", progress=False)  # type: ignore[arg-type]
    with pytest.raises(sanp.SanpError, match="unknown device"):
        sanp.fit(gated, squares_loader, "60%", device="gpu", progress=False)


def test_a_channels_last_network_is_gated_and_trained(squares_loader: Batches) -> None:
    net = SmallNet().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = squares_loader[0][0].contiguous(memory_format=torch.channels_last)
    gated = sanp.gate(net, x)
    assert torch.equal(gated.eval()(x), net.eval()(x))
    sanp.fit(gated, squares_loader, "60%", epochs=1, config=QUICK, progress=False)


def test_decisions_are_exact_where_a_device_has_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16), exact_on(torch.zeros(2)):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
