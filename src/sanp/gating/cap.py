"""The cap: no image costs more than so many FLOPs, whatever its gates would open.

Every gate has a reserve of channels, and with all reserves used the network costs at most the cap. A gate may open more
than its reserve as long as the cost of the channels opened so far, this gate's, and the reserves of the gates to come
stays within the cap; the most salient channels stay. So what earlier layers leave is there for later ones, and no layer
gets less than its reserve. The cost is the bound of cost_bound.py, which is never too low.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.core.bisection import largest_fitting
from sanp.core.errors import SanpError, shown
from sanp.core.modules import call_with, evaluating, placed_for, tensors_in
from sanp.gating.amount import Amount, parse_budget
from sanp.gating.cost import CostModel
from sanp.gating.cost_bound import CostBound, Counts
from sanp.gating.flops import human
from sanp.spm.recording import Gates, record
from sanp.tracing.topology import module_path

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

USUAL = 64
"""images that show how many channels a layer usually opens"""
HALVINGS = 50
"""of the search for the largest reserves"""


@dataclass(frozen=True, eq=False)
class Cap:
    """The most that an image may cost, and the reserve of each gate; :func:`make_cap` chooses the reserves."""

    amount: Amount
    """as the user gave it: a share of the dense FLOPs, or a count"""
    limit: int
    """FLOPs"""
    reserve: Mapping[str, int]
    """gate name to its number of channels"""
    bound: CostBound = field(repr=False)

    def __post_init__(self) -> None:
        if self.reserve.keys() != set(self.bound.gates) or any(count < 1 for count in self.reserve.values()):
            raise SanpError("a cap wants a reserve of at least one channel for each gate of its network")
        if int(self.bound([np.int64(self.reserve[name]) for name in self.bound.gates])) > self.limit:
            raise SanpError(f"the reserves of this cap cost more than its {human(self.limit)} FLOPs")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, of which :func:`read_cap` makes the cap again."""
        return {"amount": asdict(self.amount), "reserve": dict(self.reserve)}

    def __call__(self, name: str, before: Mapping[str, Gates], wanted: Tensor) -> Tensor | None:
        """How many channels of each image (N,) the layer ``name`` may open; None if all that it would open.

        ``before`` has the gates that were decided already, ``wanted`` the numbers that the layer would open (N,).
        """
        opened = {layer: _counted(gates.decision) for layer, gates in before.items()}
        found = self.allowed(name, opened, _counted(wanted[:, None]))
        return None if found is None else torch.from_numpy(found).to(wanted.device)

    def allowed(self, name: str, opened: Mapping[str, Counts], wanted: Counts) -> Counts | None:
        """The same from numbers of open channels, (N,) each."""
        if name not in self.reserve:
            raise SanpError(f"{name} runs more often than on the network's example, so that max_flops cannot hold")
        reserve = self.reserve[name]
        over = wanted > reserve
        if not over.any():
            return None
        candidates = np.arange(reserve, int(wanted.max()) + 1)  # (K,)
        counts = [
            candidates[None] if gate == name else opened[gate][over, None] if gate in opened else np.int64(kept)
            for gate, kept in ((gate, self.reserve[gate]) for gate in self.bound.gates)
        ]  # each (M or 1, K or 1)
        fits = self.bound(counts) <= self.limit  # (M, K), true up to some candidate
        at_most = wanted.copy()
        at_most[over] = np.minimum(wanted[over], reserve + fits.sum(1) - 1)
        return at_most if (at_most < wanted).any() else None


def _counted(decision: Tensor) -> Counts:
    return np.asarray(decision.sum(1).round().long().cpu().numpy())


def parse_cap(given: object) -> Amount:
    """Reads a cap: a share of the dense FLOPs or a count; an error for a time, which no count of FLOPs can bound."""
    try:
        found = parse_budget(given)
    except SanpError as error:
        raise SanpError(f"max_flops: {error}") from error
    if found.unit == "ms":
        raise SanpError(f'max_flops {shown(given)} is a time: give a share ("40%") or a count of multiply-adds ("60M")')
    return found


def check_cap(given: object, cost: CostModel, kept: float) -> None:
    """Raises an error for a cap that the gates of this ``cost`` model cannot keep to, or that is below ``kept``, the
    share of the dense FLOPs that the mean image shall cost."""
    amount, bound = parse_cap(given), CostBound(cost)
    check_below_cap(kept, amount.kept_of(cost.dense_flops))
    _check_least(amount, limit_of(amount, cost), bound, [1] * len(bound.gates))


def check_below_cap(kept: float, share: float) -> None:
    """Raises an error if a mean image shall cost more than the cap, both as shares of the dense FLOPs."""
    if kept > share:
        raise SanpError(
            f"max_flops is {share:.1%} of the dense FLOPs, below the budget of {kept:.1%}: no image may cost more than "
            "max_flops, so the mean cannot reach the budget; give a larger cap, or a smaller budget"
        )


def limit_of(amount: Amount, cost: CostModel) -> int:
    """A cap as a count of FLOPs."""
    return int(amount.kept_of(cost.dense_flops) * cost.dense_flops + 1e-6)


def make_cap(network: "GatedNetwork", given: object, usual: Mapping[str, float]) -> Cap:
    """The cap ``given``, with reserves in the proportions of ``usual``, channels by gate name, as large as fit."""
    amount, bound = parse_cap(given), CostBound(network.cost)
    limit = limit_of(amount, network.cost)
    steps = [network.layers[module_path(name)].spm.group for name in bound.gates]
    widths = [network.cost.gates[name].out_channels for name in bound.gates]
    _check_least(amount, limit, bound, steps)

    def reserves(times: float) -> list[int]:
        wanted = (times * usual[name] for name in bound.gates)
        return [
            min(width, max(step, int(count) // step * step))
            for count, step, width in zip(wanted, steps, widths, strict=True)
        ]

    def fits(counts: list[int]) -> bool:
        return int(bound([np.int64(count) for count in counts])) <= limit

    high = max(width / max(usual[name], 1e-3) for name, width in zip(bound.gates, widths, strict=True)) + 1
    largest = largest_fitting(lambda times: fits(reserves(times)), high, HALVINGS)
    return Cap(amount, limit, dict(zip(bound.gates, reserves(largest), strict=True)), bound)


def read_cap(network: "GatedNetwork", given: Mapping[str, Any]) -> Cap:
    """The cap of a network from the plain values of a file; an error if they make none."""
    amount = parse_cap(Amount(**given["amount"]))
    reserve = dict(given["reserve"])
    for name, count in reserve.items():
        group = network.layers[module_path(name)].spm.group
        if type(count) is not int or not 0 < count <= network.cost.gates[name].out_channels or count % group:
            raise ValueError(f"the reserve of {name} is {shown(count)}")
    return Cap(amount, limit_of(amount, network.cost), reserve, CostBound(network.cost))


def _check_least(amount: Amount, limit: int, bound: CostBound, least: list[int]) -> None:
    """An error if the gates cost more than ``limit`` with the ``least`` open channels of each."""
    floor = int(bound([np.int64(count) for count in least]))
    if limit < floor:
        raise SanpError(
            f"max_flops {amount} is {human(limit)}, and with the fewest open channels in each gated layer an image may "
            f"already cost {human(floor)}: give at least that"
        )


@torch.no_grad()
def usual_channels(network: "GatedNetwork", batches: list[Any]) -> dict[str, float]:
    """The mean number of channels that each gate opens, over the first images."""
    opened: dict[str, list[Tensor]] = {name: [] for name in network.cost.gates}
    seen = 0
    with evaluating(network):
        for batch in batches:
            part = tree_map(lambda leaf: leaf[: USUAL - seen] if isinstance(leaf, Tensor) else leaf, batch)  # noqa: B023
            with record(network) as gates:
                call_with(network, placed_for(network, part))
            for name, each in gates.items():
                opened[name].append(each.decision.sum(1).float().cpu())
            seen += len(tensors_in(part)[0])
            if seen >= USUAL:
                break
    return {name: max(1.0, float(torch.cat(counts).mean())) if counts else 1.0 for name, counts in opened.items()}


def uniform_use(network: "GatedNetwork") -> dict[str, float]:
    """The same share of the channels in each layer, for a network of which nothing is known."""
    return {name: float(layer.out_channels) for name, layer in network.cost.gates.items()}
