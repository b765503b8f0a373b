# Every target makes its own virtual environment; only python3 (3.11+), python3-venv and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test lint bench docs clean

demo: $(VENV)/.installed
	$(BIN)/perfpipe run workloads/gemm.yaml --html demo/report.html --md demo/report.md

test: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/build.py --check

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench_ingest.py
	$(BIN)/python benchmarks/bench_kernels.py
	$(BIN)/python benchmarks/bench_timeline.py

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/build.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(PIP) install -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev,notebook,workloads]'
	touch $@

clean:
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .pytest_cache .ruff_cache
