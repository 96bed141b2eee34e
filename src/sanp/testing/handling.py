"""Checks that a gated network can be handled as any other: trained, saved, copied, moved, under autocast and DDP."""

import copy
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sanp.checkpoint import load, save
from sanp.core.copying import copy_of, is_tied
from sanp.core.distributed import hold_group
from sanp.core.modules import call_with, tensors_in
from sanp.gating.network import GatedNetwork
from sanp.gating.verify import largest_difference
from sanp.spm.recording import Gates, record
from sanp.testing.case import SAME, Case, NotApplicable, ensure, fresh, run
from sanp.training.budget import Budget


def check_training_step(case: Case) -> None:
    """One step of training gives every SPM that ran a gradient, and changes kernels."""
    gated = fresh(case.gated).train()
    before = {name: layer.conv.state_dict() for name, layer in fresh(gated).layers.items()}
    try:
        gates = train_step(gated, gated, case.batch)
    except RuntimeError as error:
        _require_trainable(case, error)
        raise
    layers = {name: layer for name, layer in gated.layers.items() if name in gates}
    for name, layer in layers.items():
        reached = any(parameter.grad is not None and parameter.grad.any() for parameter in layer.spm.parameters())
        ensure(reached, f"training does not reach the SPM of {name}")
    kernels = ((before[name], layer.conv.state_dict()) for name, layer in layers.items())
    changed = any(not torch.equal(old[key], new[key]) for old, new in kernels for key in old)
    frozen = not any(each.requires_grad for layer in layers.values() for each in layer.conv.parameters())
    ensure(changed or frozen, "training changes no kernel")


def _require_trainable(case: Case, error: Exception) -> None:
    """Raises NotApplicable if the original has no gradient either, as where it writes over what its backward needs."""
    try:
        _loss(_with_gradient(copy_of(case.net).train(), case.batch)).backward()
    except RuntimeError as reason:
        raise NotApplicable(f"the original cannot be trained either ({reason})") from error


def train_step(network: nn.Module, gated: GatedNetwork, batch: Any) -> dict[str, Gates]:
    """One step of training on the mean square of whatever comes out, and on the cost where there are gates.

    ``network`` is ``gated`` or a wrapper of it. It gives the gates of the forward.
    """
    budget = Budget(gated, max(0.5, gated.cost.floor_flops / gated.dense_flops))
    optimizer = torch.optim.SGD(gated.parameters(), lr=0.01)
    with record(network) as gates:
        loss = _loss(_with_gradient(network, batch))
    (loss + budget.loss(gates) if gated.cost.gates else loss).backward()
    optimizer.step()
    return dict(gates)


def _with_gradient(network: nn.Module, batch: Any) -> list[Tensor]:
    """What a network puts out that has a gradient."""
    outputs = [out for out in tensors_in(call_with(network, batch)) if out.requires_grad]
    if not outputs:
        raise NotApplicable("nothing that the network puts out has a gradient")
    return outputs


def _loss(outputs: list[Tensor]) -> Tensor:
    return torch.stack([out.abs().float().square().mean() for out in outputs]).sum()


def check_save_and_load(case: Case) -> None:
    """A file gives back a network with the same outputs and the same gates."""
    chosen = case.chosen()
    with tempfile.TemporaryDirectory() as folder:
        save(chosen, Path(folder) / "network.safetensors")
        again = load(Path(folder) / "network.safetensors", case.net, case.batch)
    gap = largest_difference(run(again, case.batch), run(chosen, case.batch))
    ensure(gap <= SAME, f"the loaded network's output differs by {gap:.2e} of its size")


def check_deepcopy(case: Case) -> None:
    """A deep copy computes the same and shares nothing: closing the copy's gates does not change the original."""
    if is_tied(case.net):
        raise NotApplicable("its hooks mean its own modules, and so would those of a plain deep copy")
    chosen = case.chosen()
    expected, twin = run(chosen, case.batch), copy.deepcopy(chosen)
    ensure(largest_difference(run(twin, case.batch), expected) <= SAME, "a deep copy computes something else")
    mine = {id(tensor) for tensor in [*chosen.parameters(), *chosen.buffers()]}
    shared = [name for name, tensor in twin.named_parameters() if id(tensor) in mine]
    ensure(not shared, f"a deep copy shares {shared[:1]}")
    for layer in twin.layers.values():
        layer.spm.threshold.fill_(1e9)
    run(twin, case.batch)
    ensure(largest_difference(run(chosen, case.batch), expected) <= SAME, "closing a copy's gates changes the original")


def check_modes_and_moves(case: Case) -> None:
    """``train`` and ``eval`` reach every part as in the original, and ``to`` can be taken back."""
    chosen, original = case.chosen(), copy_of(case.net)
    first = run(chosen, case.batch)
    for training in (True, False):
        chosen.train(training), original.train(training)
        own = [module for layer in chosen.layers.values() for module in (layer, *layer.spm.modules())]
        ensure(all(module.training == training for module in own), f"train({training}) does not reach every gate")
        missing = _modes(original) - _modes(chosen)  # which may keep its batch norms in evaluation mode
        ensure(not missing, f"train({training}) does not do to {next(iter(missing), '')} what it does in the original")
    if any(each.is_complex() for each in chosen.parameters()):
        raise NotApplicable("double precision would make its complex parameters real")
    precision = next((each.dtype for each in case.net.parameters() if each.is_floating_point()), torch.float32)
    chosen.to(torch.float64).to("cpu", precision)
    gap = largest_difference(run(chosen, case.batch), first)
    ensure(gap <= SAME, f"the output changes by {gap:.2e} of its size on the way to double precision and back")


def _modes(network: nn.Module) -> Counter[tuple[str, bool]]:
    """How many modules of each class are in training mode, and how many are not."""
    return Counter((type(module).__name__, module.training) for module in network.modules())


def check_autocast(case: Case) -> None:
    """Under autocast it runs wherever the original does, and the decisions stay in single precision."""
    chosen = case.chosen()
    try:
        with torch.autocast("cpu", dtype=torch.float16):
            run(case.net, case.batch)
    except RuntimeError as error:
        raise NotApplicable(f"the original does not run under autocast ({error})") from error
    with torch.autocast("cpu", dtype=torch.float16), record(chosen) as gates:
        run(chosen, case.batch)
    kinds = {gate.saliency.dtype for gate in gates.values()} | {gate.decision.dtype for gate in gates.values()}
    ensure(kinds <= {torch.float32}, f"decisions are made in {kinds}")


def check_data_parallel(case: Case) -> None:
    """Wrapped for distributed training it takes a step, and its gates are recorded."""
    if not dist.is_available():
        raise NotApplicable("this PyTorch has no torch.distributed")
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
        hold_group()
    try:
        gated = fresh(case.gated).train()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reducer's remarks on speed
            try:
                gates = train_step(nn.parallel.DistributedDataParallel(gated), gated, case.batch)
            except (RuntimeError, ValueError) as error:
                _require_wrappable(case, error)
                _require_trainable(case, error)
                raise
        ensure(gates.keys() == gated.cost.gates.keys(), "gates are missing from the record of a wrapped network")
    finally:
        if own:
            dist.destroy_process_group()


def _require_wrappable(case: Case, error: Exception) -> None:
    """Raises NotApplicable if the original cannot be wrapped either, as with SyncBatchNorm on a CPU."""
    try:
        call_with(nn.parallel.DistributedDataParallel(copy_of(case.net).train()), case.batch)
    except (RuntimeError, ValueError) as reason:
        raise NotApplicable(f"the original cannot be wrapped either ({reason})") from error
