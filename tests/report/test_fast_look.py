"""A network by the engine on many images: the same error and costs as an evaluation in torch."""

from pathlib import Path

import pytest

from sanp.evaluation import evaluate
from sanp.experiments.run_folder import evaluation_batches, load_data, load_run, read_run
from sanp.report.fast_look import error_and_kept


def test_error_and_kept_are_those_of_an_evaluation(folder: Path) -> None:
    dataset = load_data(read_run(folder))
    network = load_run(folder, dataset).eval()
    error, kept = error_and_kept(network, evaluation_batches(dataset, 8))
    report = evaluate(network, evaluation_batches(dataset), progress=False)
    assert error == pytest.approx(report.error) and len(kept) == len(dataset.test)
    assert kept.tolist() == pytest.approx((report.per_sample / report.dense_flops).tolist())
