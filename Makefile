# Every target makes its own virtual environment; only python3 (3.11+), python3-venv and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# What tests start beside Python: an ssh server, and a browser.
SYSTEM_PACKAGES := openssh-server openssh-client chromium chromium-driver

.PHONY: demo test system lint bench docs examples clean

demo: $(VENV)/.installed
	$(BIN)/perfpipe run workloads/gemm.yaml --html demo/report.html --md demo/report.md

test: $(VENV)/.installed-dev system lint
	$(BIN)/python -m pytest -n 2

# Installed where this runs as root and has apt; elsewhere the tests that need them are skipped.
system:
	@dpkg -s $(SYSTEM_PACKAGES) >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SYSTEM_PACKAGES); } >/dev/null

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/build.py --check

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench_ingest.py
	$(BIN)/python benchmarks/bench_kernels.py
	$(BIN)/python benchmarks/bench_timeline.py
	$(BIN)/python benchmarks/bench_report.py

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/build.py

# The reports that README shows, with a picture of one.
examples: $(VENV)/.installed-dev system
	for name in gemm transformer_step; do \
	$(BIN)/perfpipe run workloads/$$name.yaml --collector replay --store build/examples \
	--html docs/examples/$$name.html --md build/$$name.md || exit 1; done
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1420 \
	--screenshot=docs/examples/transformer_step.png file://$(CURDIR)/docs/examples/transformer_step.html

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
