"""Gated networks as CPU programs that skip pruned channels; imports core, spm, tracing, gating and methods."""

from sanp.engine.bench.latency import latency_table
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.engine.operator_times import Profile, profile
from sanp.engine.plan import Plan, PlanRow

__all__ = ["Engine", "Plan", "PlanRow", "Profile", "compile", "latency_table", "profile"]
