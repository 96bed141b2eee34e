"""Calls of a compiled network: what they take, what they give, from which threads and processes."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.engine import compile
from sanp.engine.library import Unavailable, native_library
from tests.engine.networks import EXAMPLES, gated_network, outputs, trained_like

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


def test_nan_and_infinity_pass_through_as_in_torch() -> None:
    make, shape = EXAMPLES["residual"]
    torch.manual_seed(0)
    x = torch.randn(5, *shape)
    gated = gated_network(trained_like(make(), shape), x)
    fast = compile(gated, x)
    assert fast.plan.native
    x[1, 0, 3, 3], x[3, 2, 0, 0] = torch.nan, torch.inf
    (given,), (expected,) = outputs(fast, x), outputs(gated, x)
    assert torch.equal(given.isfinite().all(1), torch.tensor([True, False, True, False, True]))
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_numpy_in_numpy_out() -> None:
    net = nn.Conv2d(2, 3, 3).eval()
    fast = compile(net, torch.zeros(1, 2, 6, 6))
    assert fast.plan.native
    y = fast(np.ones((2, 2, 6, 6), np.float32)[:, :, ::-1])
    assert isinstance(y, np.ndarray)
    assert y.shape == (2, 3, 4, 4)


def test_later_changes_of_the_network_do_not_reach_the_engine() -> None:
    net = nn.Conv2d(1, 1, 1, bias=False).eval()
    net.weight.data.fill_(2)
    fast = compile(net, torch.zeros(1, 1, 2, 2))
    assert fast.plan.native
    net.weight.data.fill_(5)
    assert fast(torch.ones(1, 1, 2, 2)).unique().tolist() == [2]


def test_an_empty_batch_gives_an_empty_batch() -> None:
    fast = compile(nn.Conv2d(1, 4, 1), torch.zeros(1, 1, 2, 2))
    assert fast.plan.native
    assert fast(torch.zeros(0, 1, 2, 2)).shape == (0, 4, 2, 2)


def test_concurrent_calls_give_what_calls_one_after_the_other_give() -> None:
    make, shape = EXAMPLES["residual"]
    torch.manual_seed(0)
    x = torch.randn(6, *shape)
    fast = compile(gated_network(trained_like(make(), shape), x), x, threads=2)
    assert fast.plan.native
    batches = [x[:1], x[1:3], x[3:]]
    expected = [fast(batch) for batch in batches]
    wrong: list[int] = []

    def work(which: int) -> None:
        wrong.extend(which for _ in range(30) if not torch.equal(fast(batches[which]), expected[which]))

    workers = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


FORKED = """
import os, torch
from sanp.engine import compile
fast = compile(torch.nn.Conv2d(3, 8, 3).eval(), torch.zeros(1, 3, 12, 12), threads=2)
x = torch.randn(1, 3, 12, 12)
before = fast(x)
child = os.fork()
if child == 0:
    same = torch.equal(fast(x), before)
    fast.__dict__.clear()
    os._exit(0 if same else 1)
print(fast.plan.native, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.equal(fast(x), before))
"""


def test_a_forked_process_has_threads_of_its_own() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.split() == ["True", "0", "True"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(1, 3, 8, 8), r"shape \(1, 3, 8, 8\).*wanted is \(N, 2, 8, 8\)"),
        (torch.zeros(2, 8, 8), "wanted is"),
        (torch.zeros(1, 2, 8, 8, dtype=torch.float64), r"torch.float64.*x\.to\(torch\.float32\)"),
        (torch.zeros(1, 2, 8, 8, dtype=torch.uint8), "torch.uint8"),
        (torch.zeros(1, 2, 8, 8, device="meta"), "on meta"),
        (torch.zeros(1, 2, 8, 8).to_sparse(), "to_dense"),
    ],
)
def test_wrong_inputs_get_clear_errors(x: Tensor, message: str) -> None:
    fast = compile(nn.Conv2d(2, 3, 3), torch.zeros(1, 2, 8, 8))
    with pytest.raises(SanpError, match=message):
        fast(x)


def negative_bit(x: Tensor) -> Tensor:
    """The same numbers in a tensor whose memory holds them with the other sign, as views of conjugates are."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg() and torch.equal(view, x)
    return view


def test_a_tensor_with_the_negative_bit_is_computed_as_its_numbers_are() -> None:
    make, shape = EXAMPLES["residual"]
    x = torch.randn(5, *shape)
    fast = compile(gated_network(trained_like(make(), shape), x), x)
    expected = fast(x.clone())
    assert torch.equal(fast(negative_bit(x)), expected)
    assert torch.equal(fast(torch._neg_view(-x)), expected)  # contiguous, unlike the view of a conjugate
