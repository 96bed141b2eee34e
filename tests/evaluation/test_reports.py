"""A report as text: it fits a terminal, and layers with long names can be told apart."""

import numpy as np

from sanp.evaluation.reports import LayerReport, Report, report_text


def layer(name: str) -> LayerReport:
    counts = {"channels": 64, "never": 1, "sometimes": 2, "always": 61}
    return LayerReport(name=name, kept=0.25, flops=1e6, dense_flops=4_000_000, **counts)  # type: ignore[arg-type]


def test_names_that_end_alike_are_not_cut_and_lines_fit_80_columns() -> None:
    names = [f"resnet.encoder.stages.{stage}.layers.0.layer.0.convolution" for stage in range(3)] + ["stem", 100 * "x"]
    report = Report(
        accuracy=0.5,
        flops=5e6,
        paper_flops=5e6,
        dense_flops=20_000_000,
        overhead_flops=0,
        per_sample=np.full(4, 5e6),
        layers=tuple(map(layer, names)),
        confusion=np.eye(2, dtype=np.int64),
    )
    lines = report_text(report).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(name in lines for name in names[:3])
    assert any(line.split()[:2] == ["stem", "64"] for line in lines)
    assert "".join(lines).count("x") == 100
