"""Run folders, recipes, results and caches for the fuzzer."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from sanp.engine import tuning_cache
from sanp.engine.timing import Timing
from sanp.experiments import table
from sanp.experiments.compare import read_plan
from sanp.experiments.metrics import read_metrics
from sanp.experiments.paper.tables import readme_table, results_page
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.experiments.results import append, result_line
from sanp.experiments.run import train
from sanp.experiments.run_folder import read_report, read_run
from sanp.report.predict import Predictor
from sanp.report.run_data import read_runs
from sanp.report.run_section import run_section
from sanp.report.study_file import STUDY_FILE
from tests.tools import mutate, tiny_run
from tests.tools.fuzz_target import Target, kept_whole


def runs(folder: Path) -> list[Target]:
    """What lies in and beside a run folder."""
    run = folder / "run"
    short = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "norm_batches": 1}
    short |= {"precision": "fp32", "distill": 0.0}  # one epoch makes no teacher
    train(tiny_run.recipe(fit=short), run)
    whole = {name: (run / name).read_bytes() for name in ("config.toml", "metrics.jsonl", "report.json")}
    recipe = folder / "recipe.toml"
    metrics = folder / "log" / "metrics.jsonl"
    metrics.parent.mkdir()

    def report() -> object:
        read_report(run)
        (run / "config.toml").write_bytes(whole["config.toml"])
        return table.cells(table.read_rows([run]))

    text = [mutate.in_bytes]
    return [
        Target("config", [whole["config.toml"]], run / "config.toml", lambda: read_run(run), [*text, mutate.in_toml]),
        Target(
            "recipe",
            [whole["config.toml"]],
            recipe,
            lambda: make_recipe(read_recipe(recipe)),
            [*text, mutate.in_toml, mutate.in_toml],
        ),
        Target(
            "metrics",
            [whole["metrics.jsonl"]],
            metrics,
            lambda: read_metrics(metrics.parent),
            [*text, mutate.in_json_lines],
        ),
        Target("report", [whole["report.json"]], run / "report.json", report, [*text, mutate.in_json]),
        _plan(folder),
        _results(folder, run),
        _tuning(folder),
        *_pages(folder),
    ]


def _plan(folder: Path) -> Target:
    """A comparison's recipe."""
    path, place = folder / "plan.toml", folder / "plan"
    whole = b"""methods = ["ns", "sanp"]
backbone = "tiny"
batch_size = 32
budget = "60%"
[fit]
pretrain_epochs = 1
[ns]
sparsity = 0.001
"""

    def read() -> None:
        plan = read_plan(path, place)
        assert all(job.folder.parent == place and job.folder.name.isprintable() for job in (*plan.dense, *plan.rows))

    path.write_bytes(whole)
    read()
    return Target("plan", [whole], path, read, [mutate.in_bytes, mutate.in_toml])


def _results(folder: Path, run: Path) -> Target:
    """Results lines, and the tables that are made of them."""
    place = folder / "lines"
    path = place / "table1.jsonl"
    line = result_line("table1/tiny-sanp", run, 1.0)
    older = {key: value for key, value in line.items() if key != "overhead_flops"}
    append(path, line)
    append(path, {**older, "data": "cifar10", "seed": 1})

    def read() -> None:
        for made in (results_page(place), readme_table(place)):
            assert "<b>" not in made and "\u202e" not in made

    read()
    return Target("results", [path.read_bytes()], path, read, [mutate.in_bytes, *2 * [mutate.in_json_lines]])


def _tuning(folder: Path) -> Target:
    """The times of algorithms; a damaged file is as none."""
    os.environ["SANP_TUNING"] = str(folder / "tuning")
    library = folder / "library.so"
    library.write_bytes(b"")
    timing = Timing({0: 1.5e-5, 2: 2.5e-5}, 0.01, 4)
    tuning_cache.add(library, {"[1]": timing, "[2]": timing})
    path = tuning_cache.cache_file(library)
    assert path is not None

    def read() -> None:
        for found in tuning_cache.read_timings(library).values():
            assert found.best in found.least and found.margin >= 0
        tuning_cache.add(library, {"[3]": timing.joined(tuning_cache.read_timings(library).get("[1]"))})

    return Target("tuning", [path.read_bytes()], path, read, [mutate.in_bytes, mutate.in_json, mutate.in_json])


def _pages(folder: Path) -> list[Target]:
    """What a page and predictions read of a run folder; charts are slow, so that one case in sixteen draws them."""
    run = Path(shutil.copytree(folder / "run", folder / "page"))
    read_runs([run])  # makes the study

    def target(name: str, use: Callable[[], object], *mutations: mutate.Mutation) -> Target:
        path = run / name
        whole = _in_order(path.read_bytes()) if path.suffix == ".safetensors" else path.read_bytes()
        path.write_bytes(whole)
        return Target("page", [whole], path, kept_whole(path, use), [mutate.in_bytes, *mutations])

    def page() -> object:
        source = read_runs([run])[0]
        files = (run / "report.json", run / "metrics.jsonl", run / STUDY_FILE)
        content = b"".join(path.read_bytes() for path in files if path.is_file())
        return run_section(source) if zlib.crc32(content) % 16 == 0 else source

    return [
        target("report.json", page, mutate.in_json, mutate.in_json),
        target("metrics.jsonl", page, mutate.in_json_lines),
        target(STUDY_FILE, page, mutate.in_safetensors),
        target("inputs.json", lambda: Predictor(run), mutate.in_json, mutate.in_json),
    ]


def _in_order(file: bytes) -> bytes:
    """The safetensors file with its header in order; the library writes its fields in another order every time."""
    size = int.from_bytes(file[:8], "little")
    header = json.dumps(json.loads(file[8 : 8 + size]), sort_keys=True).encode()
    return len(header).to_bytes(8, "little") + header + file[8 + size :]
