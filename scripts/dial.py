"""Evaluates a network under the dial: error and cost of each budget, as a line of results/dial.jsonl; fills the tables.

python scripts/dial.py runs/dial            # evaluates the run's network and adds the line
python scripts/dial.py --figure             # draws docs/figures/dial.svg from the lines
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from sanp.core.errors import SanpError
from sanp.engine.bench.tables import write_figure
from sanp.experiments import run_folder
from sanp.experiments.documents import fill, table_of_rows
from sanp.experiments.results import append, read_results, result_line
from sanp.gating.network import GatedNetwork
from sanp.report.fast_look import error_and_kept

ROOT = Path(__file__).parents[1]
BUDGETS = (0.20, 0.225, 0.25, 0.30, 0.40, 0.50, 0.60)
"""shares of the dense FLOPs"""


def points(network: GatedNetwork, dataset: Any) -> list[dict[str, float]]:
    """The test error and the mean cost at each budget, and the cost of the dearest image, by the engine."""
    found = []
    for budget in BUDGETS:
        network.set_budget(budget)
        error, kept = error_and_kept(network, run_folder.evaluation_batches(dataset))
        point = {"budget": budget, "error": error, "kept": float(kept.mean()), "most": float(kept.max())}
        found.append(point)
        print(json.dumps(point), flush=True)
    return found


def measure(folder: Path, seconds: float, results: Path) -> None:
    """Adds the line of a finished run."""
    dataset = run_folder.load_data(run_folder.read_run(folder))
    network = run_folder.load_run(folder, dataset)
    if not isinstance(network, GatedNetwork) or network.dial is None:
        raise SanpError(f"{folder} holds no network with a dial: train one with --budget 20%..60%")
    line = result_line("dial", folder, seconds)
    append(results / "dial.jsonl", {**line, "points": points(network, dataset)})


def is_plain(line: dict[str, Any]) -> bool:
    """Whether a results line is of SANP as the dial has it: not with the paper's settings, or channels in groups."""
    what = (line["method"], line["backbone"], line["data"], line["images"])
    settings = (line["config"]["preset"], line["config"]["spm"]["group"])
    return what == ("sanp", "m_cifarnet", "cifar10", None) and settings == ("quick", 1)


def draw(results: Path, path: Path) -> None:
    """Error against FLOPs: the network under the dial, and networks that were trained for one budget."""
    import plotly.graph_objects as go

    figure = go.Figure()
    latest = {line["method"]: line for line in read_results(results / "dial.jsonl")}
    for method, line in latest.items():
        found = line["points"]
        shares, errors = [100 * each["kept"] for each in found], [100 * each["error"] for each in found]
        name = "one network under the dial" if method == "sanp" else f"one {method} network"
        figure.add_scatter(x=shares, y=errors, mode="lines+markers", name=name)
    rows = [line for table in ("table1", "methods") for line in read_results(results / f"{table}.jsonl")]
    single = {round(line["kept"], 3): line["error"] for line in rows if is_plain(line)}
    shares, errors = [100 * kept for kept in single], [100 * error for error in single.values()]
    figure.add_scatter(x=shares, y=errors, mode="markers", name="trained for one budget", marker={"size": 10})
    figure.update_layout(template="plotly_white", width=720, height=400, legend={"x": 0.6, "y": 0.95})
    figure.update_xaxes(title="FLOPs of an image, % of the dense network")
    figure.update_yaxes(title="test error, %")
    write_figure(figure, path)


def table(line: dict[str, Any]) -> str:
    """The points of a results line as a Markdown table."""
    found = line["points"]
    return table_of_rows(
        {
            "asked for": [f"{each['budget']:.1%}" for each in found],
            "error (%)": [f"{100 * each['error']:.2f}" for each in found],
            "cost (%)": [f"{100 * each['kept']:.2f}" for each in found],
            "dearest image (%)": [f"{100 * each['most']:.1f}" for each in found],
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long the run took")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    given = parser.parse_args()
    start = time.time()
    with torch.no_grad():
        if given.run is not None:
            measure(given.run, given.seconds, given.results)
    lines = [line for line in read_results(given.results / "dial.jsonl") if line["method"] == "sanp"]
    if lines:
        for document in ("README.md", "docs/dial.md"):
            fill(ROOT / document, "dial", table(lines[-1]))
    if given.figure:
        draw(given.results, ROOT / "docs" / "figures" / "dial.svg")
    print(json.dumps({"seconds": round(time.time() - start, 1)}))
