"""Builds the engine of a traced network step by step, and compares the two before it gives the engine out."""

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SanpError
from sanp.core.int8_calibration import Int8Calibration
from sanp.core.modules import tensors_in
from sanp.engine.agreement import NOTHING_TO_COMPARE, disagreement, disagreement_when_open, varied_batch
from sanp.engine.compiled import Engine
from sanp.engine.lowering.batch_size import for_any_batch
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.node_flops import node_flops
from sanp.engine.lowering.operators import Gate
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.segments import Segment, cut_segments
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.plan import Plan, PlanRow
from sanp.engine.plan_rows import native_row
from sanp.engine.progress_bar import ProgressBar
from sanp.engine.quantise.int8 import Quantisation, QuantisedStep, quantised_steps
from sanp.engine.quantise.rewriting import Rewritten, rewritten
from sanp.engine.steps import NativeGate, NativeStep, TorchStep, TorchUnit
from sanp.engine.tune import choose_usual, tune_program
from sanp.gating.cap import Cap
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.spm.recording import call_name, record
from sanp.tracing.graph import Node
from sanp.tracing.tracer import trace_forward

_BATCH = 2
"""samples of the trace: with one, a reshape that mixes samples could not be told from one that does not"""
_SIZES = (3, 1, 5)
"""sizes of the batches that are compared beside the traced one"""
_PLAIN = (str, bool, int, float, type(None))
"""what may stand beside the tensors of a result"""
_SLOW = 0.5
"""seconds of the traced forward after which the first sample alone is compared with the traced batch instead"""
_TUNED = 4
"""the most samples that algorithms are timed with"""


class EngineBuilder:
    """Makes the engine of one network.

    ``reference`` is the engine's own copy of the network, ``example`` an input of it in the order of its arguments.
    ``threads`` is how many threads a call will use. ``tuned`` says whether algorithms are timed. ``bar`` shows how far
    the work is.
    """

    def __init__(self, reference: nn.Module, example: Any, threads: int, tuned: bool, bar: ProgressBar) -> None:
        self.reference, self.example, self.threads, self.tuned, self.bar = reference, example, threads, tuned, bar
        self.given = tensors_in(example)
        self.segments: list[tuple[Segment, Lowering | None]] = []
        self.winograd = True
        """without it, every convolution is computed directly"""
        self.for_any_batch: dict[int, Node] = {}
        """torch's nodes with the batch size as a parameter, by identity of the traced node"""
        if any(leaf.dim() and not len(leaf) for leaf in self.given):
            raise SanpError("example_input has no samples: give at least one")
        self.by_sample = all(leaf.dim() and len(leaf) == len(self.given[0]) for leaf in self.given)
        """every input has a row for each sample"""
        self.traced = varied_batch(example, _BATCH) if self.by_sample else example
        start = time.perf_counter()
        with record(reference) as self.gates:
            self.trace = trace_forward(reference, self.traced)
        self.slow = time.perf_counter() - start > _SLOW
        self.expected = tree_leaves(self.trace.result)
        bar.update("writing programs", 0.1)

    def build(self) -> Engine:
        """The engine with its native steps; raises :class:`Unsupported` if none can be made, or if it is wrong."""
        tensors = [leaf for leaf in self.expected if isinstance(leaf, Tensor)]
        fixed = [leaf for leaf in self.expected if not isinstance(leaf, Tensor)]
        if len(tensors) != len(self.trace.outputs) or not all(isinstance(leaf, _PLAIN) for leaf in fixed):
            raise Unsupported("an output that is not made of tensors of this forward")
        if self.trace.read_back:
            names = ", ".join(dict.fromkeys(self.trace.read_back))
            raise Unsupported(f"numbers of its tensors go to Python ({names}): another image may take another way")
        if not all(map(_is_finite, self.reference.parameters())):
            raise Unsupported("weights that are NaN or infinite")
        if not self.by_sample:
            raise Unsupported("inputs without a row for each sample")
        segments = self.segments = cut_segments(self.trace)
        if all(lowering is None for _, lowering in segments):
            raise Unsupported("; ".join(dict.fromkeys(segments[0][0].reasons)))
        if any(lowering is None for _, lowering in segments):
            more = trace_forward(self.reference, varied_batch(self.example, _BATCH + 1))
            self.for_any_batch = for_any_batch(self.trace.nodes, more.nodes, _BATCH, _BATCH + 1)
        why: str | None = None
        for winograd in (True, False):
            try:
                self.winograd = winograd
                engine = self._assemble(segments)
                why = self._disagreement(engine)
                if why is None:
                    return engine
            except Unsupported:
                raise
            except Exception as error:  # an operator in torch may raise anything under another batch size
                said = " ".join(str(error).split())[:100]
                raise Unsupported(f"it does not run in segments ({type(error).__name__}: {said})") from error
        drawn = ", ".join(dict.fromkeys(self.trace.drawn))
        raise Unsupported(f"{why}: it draws random numbers ({drawn})" if drawn else str(why))

    def in_torch(self, why: str, cap: Cap | None) -> Engine:
        """An engine that only calls the network, under a cap if there is one."""
        name = type(self.reference).__name__
        engine = self._engine((), (PlanRow(name, "torch", "whole network", why),), "none", 0.0)
        engine.obey(cap)
        return engine

    def quantisation(self, engine: Engine, network: nn.Module) -> Quantisation:
        """What makes an int8 engine beside the fp32 one; ``network`` is the one that the user gave."""
        stages = [(step, lowering) for step, (_, lowering) in zip(engine.steps, self.segments, strict=True)]

        def assemble(kept: Int8Calibration) -> Engine:
            return self._assemble(self.segments, kept)

        return Quantisation(network, self.reference, self.example, stages, self.trace.inputs, assemble)

    def _assemble(self, segments: list[tuple[Segment, Lowering | None]], kept: Int8Calibration | None = None) -> Engine:
        steps: list[NativeStep | TorchStep] = []
        rows: list[PlanRow] = []
        instruction_set = int8_instruction_set = ""
        values = dict(zip(self.trace.inputs, tensors_in(self.traced), strict=True))
        names: list[str] = []
        quantised = quantised_steps([lowering for _, lowering in segments], kept)
        for (segment, lowering), on_bytes in zip(segments, quantised, strict=True):
            if lowering is not None:
                step = self._native(segment, lowering, values, names, on_bytes)
                instruction_set = step.program.instruction_set
                int8_instruction_set = step.program.int8_instruction_set
                steps.append(step)
                rows += [row for row in step.rows if row.how not in ("input", "output")]
                if segment is not segments[-1][0]:
                    step.run(values, _BATCH)
            else:
                torch_step = TorchStep(tuple(self._torch_unit(unit, names) for unit in segment.units))
                torch_step.run(values, _BATCH)
                steps.append(torch_step)
                pairs = zip(segment.units, segment.reasons, strict=True)
                rows += [PlanRow(unit.name, "torch", unit.nodes[0].op, why) for unit, why in pairs]
        engine = self._engine(tuple(steps), tuple(rows), instruction_set, self._native_share(segments))
        if kept is not None:
            engine.plan = replace(engine.plan, precision="int8", int8_instruction_set=int8_instruction_set)
        return engine

    def _torch_unit(self, unit: Unit, names: list[str]) -> TorchUnit:
        nodes = tuple(self.for_any_batch.get(id(node), node) for node in unit.nodes)
        if not isinstance(unit.module, GatedConv | FollowingConv):
            return TorchUnit(nodes)
        if isinstance(unit.module, FollowingConv):
            return TorchUnit(nodes, unit.module, unit.module.name, (*unit.inputs, *unit.outputs))
        names.append(call_name(unit.module.name, names))
        return TorchUnit(nodes, unit.module, names[-1], (*unit.inputs, *unit.outputs))

    def _native(
        self,
        segment: Segment,
        lowering: Lowering,
        values: dict[Any, Tensor],
        names: list[str],
        quantised: QuantisedStep | None,
    ) -> NativeStep:
        """A segment's program; on bytes with the ranges of its values."""
        assert isinstance(lowering.writer, ProgramWriter)
        written = Rewritten(lowering.writer, tuple(lowering.origin), {})
        if quantised is not None:
            written = rewritten(lowering.writer, lowering.origin, *quantised)
        program = written.writer.build()
        gates = []
        weights_of = [operator.weights for operator in lowering.writer.operators if isinstance(operator, Gate)]
        for module, weights in zip(lowering.gated, weights_of, strict=True):
            names.append(call_name(module.name, names))
            gates.append(NativeGate(names[-1], len(weights.b2), len(weights.b2) // weights.group))
        if self.winograd and not self.tuned:
            choose_usual(program, written.writer)
        elif self.winograd:
            samples = min(_TUNED, len(self.given[0]))
            inputs = [values[value][:1].numpy().repeat(samples, 0) for value in lowering.inputs]
            opened = [float(self.gates[gate.layer].decision[0].mean()) for gate in gates]
            tune_program(program, written.writer, inputs, self.threads, opened, self._note_tuning)
        rows = tuple(
            native_row(operator, name, program.chosen[number], written.writer, written.reasons.get(number, ""))
            for number, (operator, name) in enumerate(zip(written.writer.operators, written.origin, strict=True))
        )
        program.settle()
        shapes = tuple(tuple(self.trace.shapes[value.index][1:]) for value in segment.outputs)
        return NativeStep(program, tuple(lowering.inputs), segment.outputs, shapes, tuple(gates), self.threads, rows)

    def _native_share(self, segments: list[tuple[Segment, Lowering | None]]) -> float:
        flops = [
            (segment.native, sum(node_flops(self.trace, node) for node in segment.nodes)) for segment, _ in segments
        ]
        return sum(count for native, count in flops if native) / max(1, sum(count for _, count in flops))

    def _engine(self, steps: Any, rows: tuple[PlanRow, ...], instruction_set: str, share: float) -> Engine:
        return Engine(
            self.reference,
            steps,
            inputs=self.trace.inputs,
            example=self.example,
            outputs=self.trace.outputs,
            result=self.trace.result,
            plan=Plan(rows, instruction_set, self.threads, share),
        )

    def _note_tuning(self, share: float) -> None:
        self.bar.update("timing algorithms", 0.2 + 0.6 * share)

    def _disagreement(self, engine: Engine) -> str | None:
        """What the engine gets wrong, in words, on the traced batch and in other sizes; None if all is right."""
        self.bar.update("comparing with torch", 0.8)
        known = (self.expected, self.gates)
        if self.slow and disagreement(engine, self.reference, self.traced, known, alone=1) is None:
            return None
        decided = disagreement(engine, self.reference, self.traced, known)
        others = (varied_batch(self.example, size) for size in _SIZES)
        found = [decided, *(disagreement(engine, self.reference, batch) for batch in others)]
        found.append(disagreement_when_open(engine, self.reference, self.traced, self.gates))
        wrong = [why for why in found if why not in (None, NOTHING_TO_COMPARE)]
        if wrong:
            return wrong[0]
        return None if None in found[:-1] else NOTHING_TO_COMPARE


def _is_finite(tensor: Tensor) -> bool:
    # A sum takes a tenth of the time. It may overflow where all numbers are finite, so that only a finite one decides.
    return bool(tensor.sum().isfinite()) or bool(torch.isfinite(tensor).all())
