"""Budgets of a compiled network: what a budget adds to the thresholds that the network was compiled with."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sanp.core.errors import SanpError
from sanp.engine.steps import Lift, NativeStep, TorchStep
from sanp.gating.amount import parse_budget
from sanp.gating.cap import check_below_cap
from sanp.gating.dial import Dial, set_level
from sanp.gating.network import GatedNetwork


class Turning:
    """Finds the lift of a budget, and runs the network itself under one.

    ``reference`` is the engine's own copy of the network. A call takes its lift once, at its start, so that budgets can
    be changed while others run.
    """

    def __init__(self, reference: nn.Module, steps: Sequence[NativeStep | TorchStep]) -> None:
        self._reference = reference
        self._dial = reference.dial if isinstance(reference, GatedNetwork) else None
        self._why_not = _why_not(reference, self._dial, steps)
        self._level = 0.0 if self._why_not else next(iter(reference.layers.values())).spm.level  # type: ignore[operator]
        self._lock = threading.Lock()
        # counted once, since counting takes longer than all else of a lift
        self._dense_flops = reference.dense_flops if isinstance(reference, GatedNetwork) else 0

    @property
    def possible(self) -> bool:
        """Whether the compiled network has a dial."""
        return not self._why_not

    def lift(self, budget: object) -> float:
        """The lift of a budget of the trained range; an error for others."""
        if self._dial is None or self._why_not:
            raise SanpError(f"the budget of this compiled network cannot be set: {self._why_not}")
        assert isinstance(self._reference, GatedNetwork)
        kept = parse_budget(budget).kept_of(self._dense_flops, self._reference.latency)
        self._dial.check(kept)
        if self._reference.cap is not None:
            check_below_cap(kept, self._reference.cap.amount.kept_of(self._dense_flops))
        return self._dial.threshold(kept) - self._level

    def lifts(self, budgets: object, samples: int) -> Lift:
        """The lift of a budget, or with a list of budgets the lift of each of so many samples."""
        if isinstance(budgets, Tensor | np.ndarray):
            budgets = budgets.tolist()
        if not isinstance(budgets, list | tuple):
            return self.lift(budgets)
        if len(budgets) != samples:
            raise SanpError(f"{len(budgets)} budgets were given for {samples} samples: give one, or one for each")
        known = {budget: self.lift(budget) for budget in set(budgets)}
        return np.array([known[budget] for budget in budgets], np.float32)

    def in_torch(self, run: Callable[[Any], Any], given: Any, lift: Lift) -> Any:
        """The result of the network itself on ``given``, with thresholds that are ``lift`` higher; one call at a time.

        ``run`` calls the network; all tensors in ``given`` have a row for each sample.
        """
        if self._dial is None or self._why_not:
            return run(given)
        assert isinstance(self._reference, GatedNetwork)
        with self._lock:
            try:
                if isinstance(lift, float):
                    set_level(self._reference, self._level + lift)
                    return run(given)
                return self._by_lift(run, given, lift)
            finally:
                set_level(self._reference, self._level)

    def _by_lift(self, run: Callable[[Any], Any], given: Any, lifts: NDArray[np.float32]) -> Any:
        """Runs the samples of each lift together and puts the results back in order."""
        assert isinstance(self._reference, GatedNetwork)
        made: Any = None
        for lift in np.unique(lifts):
            rows = torch.from_numpy(np.flatnonzero(lifts == lift))
            set_level(self._reference, self._level + float(lift))
            part = run(tree_map(lambda leaf, rows=rows: leaf[rows] if isinstance(leaf, Tensor) else leaf, given))
            if made is None:
                made = tree_map(lambda leaf: leaf.new_zeros(len(lifts), *leaf.shape[1:]), part)
            for whole, piece in zip(tree_leaves(made), tree_leaves(part), strict=True):
                whole[rows] = piece
        return made


def _why_not(reference: nn.Module, dial: Dial | None, steps: Sequence[NativeStep | TorchStep]) -> str:
    """Why budgets of a compiled network cannot be set; empty if they can."""
    if not isinstance(reference, GatedNetwork) or dial is None:
        return 'the network was not trained for a range of budgets (sanp.fit with budget="20%..60%")'
    if not all(layer.spm.binarize.level_is_saliency for layer in reference.layers.values()):
        return "it opens a number of channels that is fixed: set the budget of the network, and compile it again"
    if len({layer.spm.level for layer in reference.layers.values()}) != 1:
        return "the thresholds of its layers are not those of its dial: set a budget of the range before sanp.compile"
    torch_units = [unit for step in steps if isinstance(step, TorchStep) for unit in step.units]
    if any(unit.module is not None for unit in torch_units):
        return "some of its gates run in torch (engine.plan): set the budget of the network, and compile it again"
    return ""
