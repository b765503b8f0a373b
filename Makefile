# Every target makes its own virtual environment; only python3 (3.11+), python3-venv and make are needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# What tests and checks need: every extra, with the versions that are fixed.
DEV := -c constraints.txt -e '.[dev,notebook,workloads]'

# What tests start beside Python: an ssh server, a browser, and a Slurm cluster with accounting.
# jemalloc takes a tenth of the CPU time off DuckDB's planning, of which most of the tests' time is.
SYSTEM_PACKAGES := openssh-server openssh-client chromium chromium-driver slurmctld slurmd slurm-client \
	munge slurmdbd slurm-wlm-mysql-plugin mariadb-server-core libjemalloc2
JEMALLOC = $(firstword $(wildcard /usr/lib/*/libjemalloc.so.2))
NO_DAEMONS := /usr/sbin/policy-rc.d

# What tests import when they run.
LOADED := torch, triton, sympy, pandas, scipy.stats, matplotlib.pyplot, mcp.server, ruptures

# What is imported is compiled then, and once: pip would compile ten times as much.  Without this
# a Python that is told to write nothing would compile it in each of the many processes here.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-lowest ready check lint system soak soak-batch fuzz bench docs site examples clean

demo: $(VENV)/.installed
	$(BIN)/perfpipe run workloads/gemm.yaml --html demo/report.html --md demo/report.md

# Tests, and what they import, are compiled first and once: each worker would do so at the same time.
# Checks run beside all that, and are shown behind it.  An idle worker takes tests from a busy one,
# each from the end of what it has left.
test: ready
	@$(MAKE) --no-print-directory check >$(VENV)/check.log 2>&1 & checks=$$!; \
	$(BIN)/python -c "import $(LOADED)"; $(BIN)/python -m pytest --collect-only -qq >/dev/null; \
	LD_PRELOAD=$(JEMALLOC) $(BIN)/python -m pytest -n 3 --dist worksteal --durations=10; tests=$$?; \
	wait $$checks; checks=$$?; cat $(VENV)/check.log; \
	[ $$tests = 0 ] || echo 'make test: pytest failed' >&2; \
	[ $$checks = 0 ] || echo 'make test: make check failed' >&2; \
	[ $$tests = 0 ] && [ $$checks = 0 ]

# Packages and programs are installed side by side.
ready:
	@$(MAKE) --no-print-directory -j2 $(VENV)/.installed-dev system

# Installed where this runs as root and has apt, which starts none of their daemons.  Tests that lack
# one of them are skipped, and fail where CI is set.
system:
	@dpkg -s $(SYSTEM_PACKAGES) >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
	{ [ -e $(NO_DAEMONS) ] || { trap 'rm -f $(NO_DAEMONS)' EXIT INT TERM; \
	printf '#!/bin/sh\nexit 101\n' >$(NO_DAEMONS); chmod +x $(NO_DAEMONS); }; \
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SYSTEM_PACKAGES); } >/dev/null

check lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/build.py --check

# The tests with the lowest versions that pyproject.toml allows of what perfpipe itself names; without
# PyTorch, whose programs are not perfpipe.
LOWEST := build/lowest
test-lowest: $(VENV)/bin/python system
	$(PIP) install uv
	$(BIN)/uv venv -q --clear --seed --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[dev]'
	$(BIN)/uv pip list --python $(LOWEST)/bin/python
	LD_PRELOAD=$(JEMALLOC) $(LOWEST)/bin/python -m pytest -n 3 --dist worksteal

# A batch of a thousand tasks on a cluster that fails meanwhile.
soak-batch: ready
	$(BIN)/python -m pytest -m soak

# Mutated inputs of every format, each refused in a sentence or read with rows that add up; the same
# SEED makes the same ones.
SECONDS ?= 600
SEED ?= 1
fuzz: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

# Mutated inputs, killed commands, callers at once, and a process that must not grow; what is wrong
# is printed with its seed, and its input is kept in build/soak.
soak: $(VENV)/.installed-dev
	$(BIN)/python tests/soak.py --seconds $(SECONDS) --seed $(SEED)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench_ingest.py
	$(BIN)/python benchmarks/bench_ncu_rep.py
	$(BIN)/python benchmarks/bench_kernels.py
	$(BIN)/python benchmarks/bench_timeline.py
	$(BIN)/python benchmarks/bench_ranks.py
	$(BIN)/python benchmarks/bench_report.py
	$(BIN)/python benchmarks/bench_steps.py
	$(BIN)/python benchmarks/bench_store.py
	$(BIN)/python benchmarks/bench_agents.py
	$(BIN)/python benchmarks/bench_gate.py
	mkdir -p build && $(BIN)/python benchmarks/bench_ab.py build/bench_ab.jsonl --repeats 10 --matrices 1
	$(BIN)/python benchmarks/bench_try.py
	$(BIN)/python benchmarks/bench_batch.py

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/build.py

# The docs as a site, in site/; a wrong link or anchor is an error (but not with --quiet).
site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Reports to look at, with the pictures of their first screens that README and docs show.
EXAMPLES := build/examples
examples: $(VENV)/.installed-dev system
	for name in gemm transformer_step ddp_step; do \
	$(BIN)/perfpipe run workloads/$$name.yaml --collector replay --store $(EXAMPLES) \
	--html docs/examples/$$name.html --md build/$$name.md || exit 1; done
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/annotated.py
	for name in gemm transformer_step ddp_step comparison; do \
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1300,900 \
	--virtual-time-budget=5000 \
	--screenshot=docs/examples/$$name.png file://$(CURDIR)/docs/examples/$$name.html || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(PIP) install --no-compile -e .
	touch $@

# Whether the requirements can be met is asked before anything is installed.  An older pip loads
# every package for that, this one reads what it needs of each.
$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install 'pip>=26,<27'
	@echo 'resolving the requirements (log: $(VENV)/resolution.log)'
	@$(BIN)/python -m pip install --dry-run --use-feature=fast-deps $(DEV) >$(VENV)/resolution.log 2>&1 || { \
	sed -n '/^ERROR/,$$p' $(VENV)/resolution.log >&2; \
	echo 'The requirements in pyproject.toml and constraints.txt cannot be met here: see above.' >&2; exit 1; }
	$(PIP) install --no-compile $(DEV)
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) demo build site *.egg-info .mypy_cache .pytest_cache .ruff_cache
