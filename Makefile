# Every target sets up what it needs; nothing has to be installed by hand but Python ≥ 3.11.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP  := $(VENV)/.installed
# What ruff looks at.
CODE   := src tests benchmarks experiments examples docs/conf.py docs/draw.py docs/generate.py
# Tests run on all cores, longest groups shared out as workers become free; each does its linear algebra on one core.
PARALLEL ?= --numprocesses auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-engines soak mutants bench reproduce lint docs keep pictures dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP)-core ## the main job on a built-in table
	@$(BIN)/margrave demo

test: $(STAMP)-dev ## all tests that need nothing but the package index
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not engines" $(PARALLEL)

test-engines: $(STAMP)-dev ## the heavy tests: full-size data, other engines
	@$(BIN)/python -m pytest -m engines

soak: $(STAMP)-dev ## 200 whole runs with everything drawn at random, as in: make soak ARGS="--seed 7"
	@$(BIN)/python tests/hardening/soak.py $(ARGS)

mutants: $(STAMP)-dev ## mutation testing of the rooms that the guarantee depends on (hours), as in: make mutants ARGS="--room privacy"
	@$(BIN)/python tests/hardening/mutants.py $(ARGS)

bench: $(STAMP)-dev ## the benchmarks, one JSON object a line
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

reproduce: $(STAMP)-dev ## the paper's experiments, as in: make reproduce ARGS="residual-planner --data FOLDER"
	@$(BIN)/python -m experiments $(ARGS)

lint: $(STAMP)-dev ## ruff and mypy
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy

docs: $(STAMP)-dev ## the documentation site, in build/docs; rewrites its generated pages
	@$(BIN)/python docs/generate.py
	@$(BIN)/python -m sphinx -W --keep-going --quiet --builder html docs build/docs
	@echo "build/docs/index.html"

keep: $(STAMP)-dev ## files as this version writes them, in tests/kept: when a version is released
	@$(BIN)/python tests/keep.py $(ARGS)

pictures: $(STAMP)-dev ## draw the pictures of the documentation anew (needs Chromium)
	@$(BIN)/python docs/draw.py

dist: $(STAMP)-dev ## sdist and wheel in dist/, tried in an empty environment
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m pytest tests/engines/test_packaging.py

clean: ## remove the environment and everything that was generated
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "margrave needs Python 3.11 or newer; this is %d.%d. Say which one to use: make PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV)

$(STAMP)-core: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing margrave into $(VENV) ..."
	@$(PIP) install --constraint constraints.txt --editable ".[report]"
	@touch $@

$(STAMP)-dev: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing margrave and its development tools into $(VENV) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(STAMP)-core
