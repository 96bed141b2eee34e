"""Which families the engine can write whole, and why not the others: traces and lowers, and runs nothing natively.

Run from the repository: ``python -m tests.networks.survey``, with names of families for only those. A family takes
seconds, for nothing is compared: that is the battery's (``python -m tests.networks.sweep --compiled``). What is done is
a line in results/survey.jsonl.
"""

import gc
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sanp.engine.agreement import varied_batch
from sanp.engine.lowering.node_flops import node_flops
from sanp.engine.lowering.segments import cut_segments
from sanp.engine.lowering.unsupported import Unsupported
from sanp.experiments.documents import fill
from sanp.experiments.results import append, commit, read_results
from sanp.gating.gating import gate
from sanp.tracing.tracer import trace_forward
from tests.networks.families import maker
from tests.networks.sweep import EVERY, PAGE
from tests.networks.transformers_networks import TRANSFORMERS, transformers_network

LINES = Path("results/survey.jsonl")


def survey(family: str) -> tuple[float, Counter[str]]:
    """The share of the FLOPs that can be written, and how many units run in torch for which reason."""
    if family in TRANSFORMERS:
        make, example = transformers_network(family)
    else:
        make, size = maker(family)
        example = torch.randn(1, 3, size, size)
    with torch.no_grad():
        gated = gate(make().eval(), example).eval()
        trace = trace_forward(gated, varied_batch(example, 2))
    if trace.read_back:
        return 0.0, Counter({"numbers of its tensors go to Python": 1})
    try:
        segments = [segment for segment, _ in cut_segments(trace)]
    except Unsupported as why:
        return 0.0, Counter({f"whole: {why}": 1})
    flops = [(segment.native, sum(node_flops(trace, node) for node in segment.nodes)) for segment in segments]
    reasons = Counter(
        f"{unit.nodes[0].op if unit.module is None else 'gated convolution'}: {why}"
        for segment in segments
        for unit, why in zip(segment.units, segment.reasons, strict=False)
    )
    return sum(count for native, count in flops if native) / max(1, sum(count for _, count in flops)), reasons


def main(wanted: list[str]) -> None:
    """A line for each family in results/survey.jsonl, then the paragraph of docs/networks.md."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = {line["family"] for line in read_results(LINES)}
    for family in wanted or [family for family in EVERY if family not in done]:
        start = time.perf_counter()
        share, reasons = survey(family)
        said = "; ".join(f"{count} {why}" for why, count in reasons.most_common())
        sys.stdout.write(f"{family}: {share:.1%}, {time.perf_counter() - start:.0f} s {said}\n")
        sys.stdout.flush()
        append(LINES, {"family": family, "native_share": share, "in_torch": dict(reasons), "commit": commit()})
        gc.collect()
    fill(PAGE, "survey", paragraph({line["family"]: line for line in read_results(LINES)}))


def paragraph(lines: Mapping[str, Mapping[str, Any]]) -> str:
    """How many families can be written whole, and the reasons of the others."""
    rest = {family: line["in_torch"] for family, line in lines.items() if line["in_torch"]}
    head = f"{len(lines) - len(rest)} of {len(lines)} families can be written from end to end. The others:"
    return "\n".join([head, "", *(f"- {family}: {_reasons(why)}" for family, why in sorted(rest.items()))])


def _reasons(found: Mapping[str, int]) -> str:
    own = [why for why in found if not why.endswith("without a convolution")]
    return "; ".join(own or found).replace("|", "/")


if __name__ == "__main__":
    main(sys.argv[1:])
