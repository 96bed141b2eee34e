"""A compiled network: native programs and torch operators that run one after the other, behind one call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in
from sanp.engine.arguments import in_order
from sanp.engine.capping import Capping
from sanp.engine.plan import Plan
from sanp.engine.steps import CallSettings, Forced, Lift, NativeStep, TorchStep, Values
from sanp.engine.turning import Turning
from sanp.engine.wanted_inputs import WantedInputs, from_numpy
from sanp.gating.cap import Cap
from sanp.gating.network import GatedNetwork
from sanp.spm.gated_conv import spms_of
from sanp.tracing.graph import Value
from sanp.tracing.topology import module_path

_A_TENSOR = object()
"""stands for each tensor among the leaves of a result"""


class Engine:
    """A network that computes only the open channels; called like the network it was compiled from.

    Takes and gives torch tensors, or numpy arrays if it is given those, in batches of any size. Any number of threads
    may call it at a time.

    ``reference`` is the network itself, for the samples that torch must compute; without ``steps`` it computes all.
    ``inputs`` and ``outputs`` are the traced values of ``example`` and of the tensors in ``result``, what the network
    gave for it; everything else in there is given by every call as it is.
    """

    def __init__(
        self,
        reference: nn.Module,
        steps: Sequence[NativeStep | TorchStep],
        *,
        inputs: Sequence[Value],
        example: Any,
        outputs: Sequence[Value],
        result: Any,
        plan: Plan,
    ) -> None:
        self.plan = plan
        self._reference = reference
        self._steps = tuple(steps)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        leaves, self._structure = tree_flatten(result)
        self._leaves = [_A_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._wanted = WantedInputs(reference, example, in_steps=bool(self._steps))
        self._single = isinstance(result, Tensor)
        self.only = _only_native(self._steps, self._outputs) if self._wanted.is_one_tensor and self._single else None
        """the native program that is the whole network, from one tensor to one; None if there is no such program"""
        self._turning = Turning(reference, self._steps)
        self._lift = 0.0
        self._capping: Capping | None = None

    @property
    def steps(self) -> tuple[NativeStep | TorchStep, ...]:
        """What runs, in order; empty if the network itself computes all."""
        return self._steps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the network in evaluation mode and in its own precision, inside autocast too.

        A network that was trained for a range of budgets takes ``budget`` as well: for this call alone, one budget or a
        list with one for each sample.
        """
        lift: Lift = self._lift  # read once: another thread may set a budget meanwhile
        if self._turning.possible and "budget" in kwargs:
            budget = kwargs.pop("budget")
            samples = [len(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor | np.ndarray)]
            lift = lift if budget is None else self._turning.lifts(budget, samples[0] if samples else 0)
        if self.only is not None and len(args) == 1 and not kwargs and isinstance(lift, float):
            result = self._at_once(self.only, args[0], lift)
            if result is not None:
                return result
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return self._run(args, kwargs, lift)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise SanpError("a compiled network is not copied or pickled: save the network, and compile it where it runs")

    def set_budget(self, budget: object) -> None:
        """Sets the budget of later calls, at once and without compiling again.

        ``budget`` is one of the range that the network was trained for. Any number of threads may call the engine
        meanwhile: a call has the budget that was set when it began.
        """
        self._lift = self._turning.lift(budget)

    def obey(self, cap: Cap | None) -> None:
        """Sets the ``cap`` on what a sample may cost, or none; :class:`Unsupported` if it cannot be kept natively."""
        if cap is None:
            return
        assert isinstance(self._reference, GatedNetwork)
        self._capping = Capping(cap, self._steps) if self._steps else None
        self._reference.cap = cap

    def _at_once(self, step: NativeStep, x: Any, lift: float) -> Tensor | None:
        """The usual case, one tensor through one native program, with few checks.

        None if the input is of another kind or shape or a number is not finite; then the general path runs.
        """
        if type(x) is not Tensor or x.layout != torch.strided or x.dtype != torch.float32 or not x.is_cpu:
            return None
        if x.shape[1:] != self._wanted.leaves[0].shape[1:] or not x.is_contiguous() or x.is_neg():
            return None
        batch = x.shape[0]
        y = torch.empty(batch, *step.shapes[0])
        capped = (None, None) if self._capping is None else self._capping.addresses(step)
        return y if step.program.run_one(x.data_ptr(), y.data_ptr(), batch, step.threads, lift, *capped) else None

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], lift: Lift) -> Any:
        tensors, wants_numpy = self._wanted.taken_from(args, kwargs)
        back: Callable[[Tensor], Any] = (lambda y: y.numpy()) if wants_numpy else (lambda y: y)
        if not self._steps:
            return tree_map_only(Tensor, back, self._in_torch(args, kwargs, None, lift))
        values: Values = dict(zip(self._inputs, tensors, strict=True))
        batch = len(tensors[0])
        suspect: set[int] = set()
        asked = self._asked(batch, None, lift)
        for step in self._steps:
            finite = step.run(values, batch, asked)
            if 0 in finite:
                suspect.update(row for row, flag in enumerate(finite) if not flag)
        results = [values[value] for value in self._outputs]
        if suspect:
            # Zero times NaN or infinity is not zero, so for these samples every channel has to be computed.
            # What runs in torch may mix samples: then no row can be computed without the others.
            mixed = any(isinstance(step, TorchStep) for step in self._steps)
            if mixed or any(result.dim() == 0 or len(result) != batch for result in results):
                return tree_map_only(Tensor, back, self._in_torch(args, kwargs, None, lift))
            rows = torch.tensor(sorted(suspect))
            some = lift if isinstance(lift, float) else lift[rows.numpy()]
            leaves = tree_leaves(self._in_torch(args, kwargs, rows, some))
            for result, exact in zip(results, filter(torch.is_tensor, leaves), strict=True):
                result[rows] = exact
        if self._single:
            return back(results[0])
        made = map(back, results)
        return tree_unflatten([next(made) if leaf is _A_TENSOR else leaf for leaf in self._leaves], self._structure)

    def run_forced(
        self, example: Any, decisions: Mapping[str, Tensor] | None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The tensors of the result with gates that decide as they are told, and the scores that they had.

        ``example`` is as :func:`sanp.compile` takes it; ``decisions`` has (N, C_out) for each gated layer by name, as
        ``sanp.record`` gives them; with None the gates decide by themselves. A layer's score is
        (N, groups of channels): open where it is high.
        """
        return self._with_scores(example, Forced(decisions))

    def run_recorded(
        self, example: Any, *, lift: float | None = None, scores: dict[str, Tensor] | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor]] | None:
        """The tensors of the result, and what the gates decided: (N, C_out), 0 or 1, for each gated layer by name.

        ``example`` is as :func:`sanp.compile` takes it. ``lift`` is added to the thresholds of all gates, in place of
        that of the budget that was set. ``scores`` is filled with what the gates decided by. None where it cannot be
        told: all runs in torch, or a number is not finite, or a gate waits for a batch norm outside its module.
        """
        if not self._steps:
            return None
        scores = {} if scores is None else scores
        outputs, _ = self._with_scores(example, Forced(None, scores), lift)
        spms = spms_of(self._reference)
        known = {module_path(layer) for layer in scores}
        if known != set(spms) or not all(bool(each.isfinite().all()) for each in outputs):
            return None
        decided: dict[str, Tensor] = {}
        for layer, score in scores.items():
            spm = spms[module_path(layer)]
            own = self._capping.decided(spm, layer, score, decided) if self._capping else spm.binarize.decide(score)
            decided[layer] = own.float().repeat_interleave(spm.group, 1)
        return outputs, decided

    def _with_scores(
        self, example: Any, forced: Forced, lift: float | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        values: Values = dict(zip(self._inputs, tensors_in(in_order(self._reference, example)), strict=True))
        batch = len(next(iter(values.values())))
        asked = self._asked(batch, forced, self._lift if lift is None else lift)
        with torch.no_grad():
            for step in self._steps:
                step.run(values, batch, asked)
        return [values[value] for value in self._outputs], forced.scores

    def _asked(self, batch: int, forced: Forced | None, lift: Lift) -> CallSettings:
        """What a call of so many samples asks of its steps."""
        return CallSettings(forced, lift, None if self._capping is None else self._capping.spending(batch))

    def _in_torch(self, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Tensor | None, lift: Lift) -> Any:
        """The network itself, on all samples or some of them."""

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor | np.ndarray):
                return leaf
            tensor = from_numpy(leaf)
            return tensor.contiguous() if rows is None or tensor.dim() == 0 else tensor[rows]

        def run(given: Any) -> Any:
            return self._reference(*given[0], **given[1])

        return self._turning.in_torch(run, tree_map(given, (args, kwargs)), lift)


def _only_native(steps: Sequence[NativeStep | TorchStep], outputs: tuple[Value, ...]) -> NativeStep | None:
    """The native program that is the whole network, if one is."""
    step = steps[0] if len(steps) == 1 else None
    return step if isinstance(step, NativeStep) and step.outputs == outputs else None
