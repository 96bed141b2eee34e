"""Checks for any network, in the manner of scikit-learn's ``check_estimator``: does gating it tell the truth?

It imports core, spm, tracing, gating, training, checkpoint and engine.
"""

from sanp.testing.battery import CHECKS, NetworkReport, check_network
from sanp.testing.case import Case, CheckError, NotApplicable

__all__ = ["CHECKS", "Case", "CheckError", "NetworkReport", "NotApplicable", "check_network"]
