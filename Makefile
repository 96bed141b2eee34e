# Two commands: `make demo` prunes a real network on real images, `make test` checks everything.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format setup

demo: setup
	$(BIN)/sanp train --recipe recipes/demo.toml

test: lint
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(READY)

# Installs only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
