"""The files that the fuzzer damages: whole ones of every kind that sanp reads, and what reads them."""

from pathlib import Path

import torch

from tests.tools.fuzz_networks import networks
from tests.tools.fuzz_pictures import pictures
from tests.tools.fuzz_requests import requests
from tests.tools.fuzz_runs import runs
from tests.tools.fuzz_states import states
from tests.tools.fuzz_target import Target


def targets(folder: Path) -> dict[str, list[Target]]:
    """Everything that a user may have received from someone, by name."""
    torch.manual_seed(0)  # a case is its number: the files must be the same every time
    folder.mkdir(parents=True, exist_ok=True)
    named: dict[str, list[Target]] = {}
    made = (networks(folder), states(folder), runs(folder), pictures(folder), requests(folder / "run"))
    for target in (each for some in made for each in some):
        named.setdefault(target.name, []).append(target)
    return named
