"""A battery for any network, in the manner of scikit-learn's ``check_estimator``: does gating it tell the truth?"""

import copy
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.checkpoint import load, save
from sanp.cost import dense_flops
from sanp.distributed import hold_group
from sanp.gate import MIXED_ROWS, gate, trace_batch
from sanp.gated_conv import GatedConv
from sanp.network import GatedNetwork
from sanp.nonzero import ConvCall, count, random_gates, randomize
from sanp.objective import Budget
from sanp.record import Gates, record
from sanp.trace import call_with, evaluating, tensors_in
from sanp.unchanged import gates_by, largest_difference

SAME = 1e-5
"""relative difference up to which two outputs are the same"""


class CheckError(AssertionError):
    """A network failed the battery; the message says which check and what was found."""


@dataclass(frozen=True, kw_only=True)
class NetworkReport:
    """What the battery saw of a network that passed."""

    network: str
    convolutions: int
    gated: int
    """convolutions with an SPM"""
    following: int
    """depthwise convolutions that share the gates of their input"""
    dense_flops: int
    gated_share: float
    """of the dense FLOPs: what the gated and following convolutions cost"""
    floor: float
    """of the dense FLOPs: the least that a forward can cost"""
    skipped: dict[str, str]
    """convolutions left dense, with the reason"""
    unknown: dict[str, int]
    """operators without a rule that gated channels met"""
    skipped_checks: dict[str, str]
    """checks that do not apply, with the reason"""


class NotApplicable(Exception):
    """A check has nothing to say about this network; the message is the reason."""


class Case:
    """One network under test: the original, its gated form, and a batch of at least two samples."""

    def __init__(self, make_net: Callable[[], nn.Module], example_input: Any) -> None:
        torch.manual_seed(0)
        self.net = make_net()
        _, self.batch = trace_batch(self.net, example_input)
        self.gated = gate(self.net, example_input)
        self.generator = torch.Generator().manual_seed(0)

    @cached_property
    def expected(self) -> Any:
        """What the original puts out in evaluation mode."""
        return run(self.net, self.batch)

    def chosen(self) -> GatedNetwork:
        """The gated network with random saliencies around 1, so that about half its channels are pruned.

        They are the same for each sample: predicted from the features of an untrained network they would grow from
        layer to layer beyond all bounds.
        """
        chosen = copy.deepcopy(self.gated)
        for layer in chosen.layers.values():
            for parameter in layer.spm.parameters():
                random = torch.rand(parameter.shape, generator=self.generator) + 0.5
                parameter.data.copy_(random if parameter.dim() == 1 else torch.zeros_like(parameter))
            layer.spm.threshold.fill_(1.0)
        return chosen


@torch.no_grad()
def run(network: nn.Module, batch: Any) -> Any:
    """The output in evaluation mode."""
    with evaluating(network):
        return call_with(network, batch)


def require(holds: bool, message: str) -> None:
    """An error with this message unless it holds."""
    if not holds:
        raise CheckError(message)


def check_open_gates_change_nothing(case: Case) -> None:
    """Before training the gated network computes what the original does, and the original is as it was."""
    gap = largest_difference(run(case.gated, case.batch), case.expected)
    if gap > SAME and largest_difference(run(case.net, case.batch), case.expected) > SAME:
        raise NotApplicable("the network draws random numbers in evaluation")
    require(gap <= SAME, f"the gated output differs from the original's by {gap:.2e} of its size")
    require(not any(isinstance(module, GatedConv) for module in case.net.modules()), "the original was changed")


def check_cost_is_what_is_left(case: Case) -> None:
    """With random gates, each convolution costs what counting non-zero channels gives, sample by sample."""
    gated = copy.deepcopy(case.gated)
    randomize(gated.net, case.generator)
    calls, gates = _counted(gated, case, torch.float64)
    if not all(call.finite for call in calls):
        raise NotApplicable("with random weights, the network's features grow beyond the numbers there are")
    said = gated.cost.per_layer({name: gate.decision.double() for name, gate in gates.items()})
    require(len(calls) == len(said), f"{len(calls)} convolutions ran, the cost model knows {len(said)}")
    for (name, mine), call in zip(said.items(), calls, strict=True):
        layer, counted = gated.cost.topology.layer(name), call.flops()
        mine = mine.expand(max((len(gate.decision) for gate in gates.values()), default=1))
        if len(counted) != len(mine) or gated.skipped.get(name) == MIXED_ROWS:
            mine, counted = mine.sum()[None], counted.sum()[None]
        require(
            bool((mine >= counted - 0.5).all()), f"{name} is said to cost {mine.tolist()}, it costs {counted.tolist()}"
        )
        exact = bool(gated.cost.topology.unknown) or bool((mine <= counted + 0.5).all())
        require(exact, f"{name} ({layer.role}) is said to cost {mine.tolist()}, only {counted.tolist()} is left")


def _counted(gated: GatedNetwork, case: Case, dtype: torch.dtype) -> tuple[list[ConvCall], dict[str, Gates]]:
    """The convolutions of a forward with random gates, in double precision if the network knows that."""

    def noise(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return torch.randn(leaf.shape, generator=case.generator).to(dtype)

    gated.to(dtype)
    batch = tree_map(noise, case.batch)
    with gates_by(gated, random_gates(gated, case.generator)), record(gated) as gates, count(gated) as calls:
        try:
            run(gated, batch)
        except RuntimeError:
            if dtype == torch.float32:
                raise
            return _counted(gated, case, torch.float32)
    return calls, dict(gates)


def check_pruned_channels_are_zero(case: Case) -> None:
    """A pruned channel is exactly zero for the samples that prune it."""
    chosen = case.chosen()
    found: dict[str, Tensor] = {}

    def keep(module: GatedConv, args: Any, out: Tensor) -> None:
        found.setdefault(module.name, out.flatten(2).clone())

    for layer in chosen.layers.values():
        if not layer.norm_outside:
            layer.register_forward_hook(keep)
    with record(chosen) as gates:
        run(chosen, case.batch)
    for name, features in found.items():
        closed = gates[name].decision == 0
        require(not bool(features[closed].any()), f"{name} puts out something where its gate is closed")


def check_training_step(case: Case) -> None:
    """One step of training reaches every SPM that ran, and changes kernels."""
    gated = copy.deepcopy(case.gated).train()
    before = {name: layer.conv.state_dict() for name, layer in copy.deepcopy(gated).layers.items()}
    budget = Budget(gated, max(0.5, gated.cost.floor_flops / gated.dense_flops))
    gates = train_step(gated, gated, budget, case.batch)
    layers = {name: layer for name, layer in gated.layers.items() if name in gates}
    for name, layer in layers.items():
        reached = any(parameter.grad is not None and parameter.grad.any() for parameter in layer.spm.parameters())
        require(reached, f"training does not reach the SPM of {name}")
    kernels = ((before[name], layer.conv.state_dict()) for name, layer in layers.items())
    changed = any(not torch.equal(old[key], new[key]) for old, new in kernels for key in old)
    require(changed or not layers, "training changes no kernel")


def train_step(network: nn.Module, gated: GatedNetwork, budget: Budget, batch: Any) -> dict[str, Gates]:
    """One step on the mean square of whatever comes out; gives the gates."""
    optimizer = torch.optim.SGD(gated.parameters(), lr=0.01)
    with record(network) as gates:
        outputs = [out for out in tensors_in(call_with(network, batch)) if out.requires_grad]
    if not outputs:
        raise NotApplicable("nothing that the network puts out has a gradient")
    loss = torch.stack([out.float().square().mean() for out in outputs]).sum() + budget.loss(gates)
    loss.backward()
    optimizer.step()
    return dict(gates)


def check_save_and_load(case: Case) -> None:
    """A file gives back a network with the same outputs and the same gates."""
    chosen = case.chosen()
    with tempfile.TemporaryDirectory() as folder:
        save(chosen, Path(folder) / "network.safetensors")
        again = load(Path(folder) / "network.safetensors", case.net, case.batch)
    gap = largest_difference(run(again, case.batch), run(chosen, case.batch))
    require(gap <= SAME, f"the loaded network's output differs by {gap:.2e} of its size")


def check_deepcopy(case: Case) -> None:
    """A copy computes the same and shares nothing: closing the copy's gates leaves the original alone."""
    chosen = case.chosen()
    expected, twin = run(chosen, case.batch), copy.deepcopy(chosen)
    require(largest_difference(run(twin, case.batch), expected) <= SAME, "a deep copy computes something else")
    mine = {id(tensor) for tensor in [*chosen.parameters(), *chosen.buffers()]}
    shared = [name for name, tensor in twin.named_parameters() if id(tensor) in mine]
    require(not shared, f"a deep copy shares {shared[:1]}")
    for layer in twin.layers.values():
        layer.spm.threshold.fill_(1e9)
    run(twin, case.batch)
    require(
        largest_difference(run(chosen, case.batch), expected) <= SAME, "closing a copy's gates changes the original"
    )


def check_modes_and_moves(case: Case) -> None:
    """Evaluation draws nothing; ``train``, ``eval`` and ``to`` reach every part and can be taken back."""
    chosen = case.chosen()
    first = run(chosen, case.batch)
    chosen.train(True)
    require(all(module.training for module in chosen.modules()), "train() does not reach every module")
    chosen.eval()
    require(not any(module.training for module in chosen.modules()), "eval() does not reach every module")
    chosen.to(torch.float64).to("cpu", torch.float32)
    gap = largest_difference(run(chosen, case.batch), first)
    require(gap <= SAME, f"the output changes by {gap:.2e} of its size on the way to double precision and back")


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
    require(kinds <= {torch.float32}, f"decisions are made in {kinds}")


def check_data_parallel(case: Case) -> None:
    """Wrapped for distributed training it takes a step, and its gates are recorded."""
    if not dist.is_available():
        raise NotApplicable("this PyTorch has no torch.distributed")
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
        hold_group()
    try:
        gated = copy.deepcopy(case.gated).train()
        wrapped = nn.parallel.DistributedDataParallel(gated)
        budget = Budget(gated, max(0.5, gated.cost.floor_flops / gated.dense_flops))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reducer's remarks on speed
            gates = train_step(wrapped, gated, budget, case.batch)
        require(gates.keys() == gated.cost.gates.keys(), "gates are missing from the record of a wrapped network")
    finally:
        if own:
            dist.destroy_process_group()


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_open_gates_change_nothing,
    check_cost_is_what_is_left,
    check_pruned_channels_are_zero,
    check_training_step,
    check_save_and_load,
    check_deepcopy,
    check_modes_and_moves,
    check_autocast,
    check_data_parallel,
)


def check_network(
    make_net: Callable[[], nn.Module], example_input: Any, *, checks: tuple[Callable[[Case], None], ...] = CHECKS
) -> NetworkReport:
    """Gates a fresh network and runs every check on it; a failure is a :class:`CheckError` that says which and why."""
    case = Case(make_net, example_input)
    skipped: dict[str, str] = {}
    for check in checks:
        try:
            check(case)
        except NotApplicable as reason:
            skipped[check.__name__] = str(reason)
        except Exception as error:
            what = str(error) if isinstance(error, CheckError) else f"{type(error).__name__}: {error}"
            raise CheckError(f"{check.__name__}: {what}") from error
    return report_on(case.gated, skipped)


def report_on(gated: GatedNetwork, skipped_checks: dict[str, str]) -> NetworkReport:
    """What there is to say of a gated network."""
    layers = gated.cost.layers
    pruned = [layer for layer in layers if layer.role != "dense"]
    return NetworkReport(
        network=type(gated.net).__name__,
        convolutions=len(layers),
        gated=len(gated.cost.gates),
        following=len(pruned) - len(gated.cost.gates),
        dense_flops=gated.dense_flops,
        gated_share=sum(dense_flops(layer) for layer in pruned) / gated.dense_flops,
        floor=gated.cost.floor_flops / gated.dense_flops,
        skipped=dict(gated.skipped),
        unknown=dict(gated.cost.topology.unknown),
        skipped_checks=skipped_checks,
    )
