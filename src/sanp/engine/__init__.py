"""Gated networks compiled for the CPU: the same outputs, and a pruned channel is never computed."""

from sanp.engine.bench.latency import latency_table
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.engine.plan import Plan, PlanRow

__all__ = ["Engine", "Plan", "PlanRow", "compile", "latency_table"]
