"""Measures networks: accuracy, FLOPs and open channels; imports core, spm, tracing, gating and training."""

from sanp.evaluation.measuring import evaluate
from sanp.evaluation.onlooker import Onlooker, Seen
from sanp.evaluation.reports import LayerReport, Report, report_text

__all__ = ["LayerReport", "Onlooker", "Report", "Seen", "evaluate", "report_text"]
