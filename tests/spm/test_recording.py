"""Recording gates: a record gets those of the last forward of its own network, and no others."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import sanp
from sanp.core.modules import unwrapped
from sanp.spm.recording import Gates, Recording, running
from tests.conftest import SmallNet
from tests.networks.parts import IMAGE, block, conv


def gated() -> sanp.GatedNetwork:
    return sanp.gate(nn.Sequential(block(3, 4), conv(4, 2)), IMAGE)


def test_a_record_holds_the_last_forward_in_order_of_execution() -> None:
    network = gated()
    with sanp.record(network) as gates:
        assert gates == {}
        network(torch.randn(5, 3, 8, 8))
        network(IMAGE)
    assert list(gates) == ["0.0", "1"]
    assert {name: tuple(gate.decision.shape) for name, gate in gates.items()} == {"0.0": (1, 4), "1": (1, 2)}
    assert running() is None


def test_another_network_or_a_forward_outside_is_not_recorded() -> None:
    first, second = gated(), gated()
    with sanp.record(first) as gates:
        second(IMAGE)
    first(IMAGE)
    assert gates == {}


def test_records_can_be_nested() -> None:
    network = gated()
    with sanp.record(network) as outer, sanp.record(network) as inner:
        network(IMAGE)
    assert list(inner) == list(outer) == ["0.0", "1"]


def test_every_thread_has_its_own_record() -> None:
    network = gated()
    heard: list[int] = []

    def listen() -> None:
        with sanp.record(network) as mine:
            network(IMAGE)
        heard.append(len(mine))

    with sanp.record(network) as outer:
        network(IMAGE)
        before = dict(outer)
        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        assert heard == [2] and all(outer[name] is before[name] for name in before)


def test_a_second_call_of_a_layer_has_a_name_of_its_own() -> None:
    recording, gates = Recording(), Gates(torch.ones(1), torch.ones(1), torch.ones(1))
    for _ in range(3):
        recording.note("a", gates)
    assert list(recording) == ["a", "a:2", "a:3"]


def test_an_error_in_a_forward_leaves_nothing_behind() -> None:
    network = gated()
    with sanp.record(network) as gates, pytest.raises(RuntimeError):
        network(torch.randn(1, 2, 8, 8))
    assert gates == {} and running() is None


def test_wrappers_are_taken_off() -> None:
    network = gated()
    compiled = torch.compile(network, backend="eager")
    assert unwrapped(compiled) is network
    assert unwrapped(network) is network
    with sanp.record(compiled) as gates:
        network(IMAGE)
    assert len(gates) == 2


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda net: torch.compile(net, backend="eager")])
def test_a_wrapped_network_goes_through_every_door(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    network = sanp.gate(SmallNet(width=4), IMAGE).eval()
    images = torch.randn(8, 3, 8, 8)
    network.set_budget(0.6, images)
    wrapped = wrap(network)
    batches = [(images, torch.zeros(8, dtype=torch.long))]
    assert sanp.evaluate(wrapped, batches).flops == sanp.evaluate(network, batches).flops < network.dense_flops
    with torch.no_grad(), sanp.record(wrapped) as gates:
        wrapped(images)
    assert sanp.Budget(wrapped, "50%").loss(gates) > 0
    sanp.save(wrapped, tmp_path / "net.safetensors")
    loaded = sanp.load(tmp_path / "net.safetensors", SmallNet(width=4)).eval()
    assert torch.equal(loaded(images), network(images))
    assert torch.allclose(sanp.compile(wrapped, images)(images), network(images), atol=1e-5)
