"""Two finished runs on the same test images: how many images each alone has right (McNemar's test).

    python scripts/paired.py runs/methods-m_cifarnet-sanp-16.1.11 runs/methods-m_cifarnet-static-16.1.11

Appends to results/paired.jsonl. Were both equally good, ``deviations`` would lie within -2 and 2 in 19 of 20 cases.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from sanp.experiments import run_folder
from sanp.experiments.results import append, commit

ROOT = Path(__file__).parents[1]


@torch.no_grad()
def right(folder: Path) -> Tensor:
    """For every test image whether the run's network has it right."""
    dataset = run_folder.load_data(run_folder.read_run(folder))
    network = run_folder.load_run(folder, dataset).eval()
    return torch.cat([network(x).argmax(1) == y for x, y in run_folder.evaluation_batches(dataset)])


def paired(first: Tensor, second: Tensor) -> dict[str, float]:
    """Images that one alone has right, and their difference in standard deviations of such a count."""
    one, other = int((first & ~second).sum()), int((~first & second).sum())
    return {
        "images": len(first),
        "first_alone": one,
        "second_alone": other,
        "deviations": round((one - other) / math.sqrt(max(1, one + other)), 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs=2)
    given = parser.parse_args()
    found = paired(*map(right, given.runs))
    append(
        ROOT / "results" / "paired.jsonl",
        {"runs": [folder.name for folder in given.runs], **found, "commit": commit()},
    )
    print(*(f"{key} {value}" for key, value in found.items()), sep=", ")
