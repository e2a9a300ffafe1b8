# noctuary: every target works from any directory (make -C path/to/noctuary TARGET) and sets up what it needs.
SHELL := /bin/bash
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
VENV := $(ROOT)/.venv
PY := $(VENV)/bin/python
BASE_PYTHON ?= python3
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
# STORE is resolved against the directory that make was called from.
STORE ?=
Q ?= who is my manager
SETS ?=
ARMS ?=
WORKERS ?= 2
# A database (env:NAME, postgresql://...) is no path.
SOURCE := $(if $(STORE),$(if $(filter env:% postgresql:% postgres:%,$(STORE)),$(STORE),$(abspath $(STORE))),)
CODE := lib assets pipelines tests bench docs findings

TARGETS := help setup setup-ray setup-docs nightly recall status doctor test test-server test-ray test-agents test-all mutants lint format types defs bench bench-quality bench-peers bench-verify bench-scale bench-tables docs docs-build ui clean
# What was misspelt would be passed over, and the night would run on the sample.
OPTIONS := STORE Q SETS ARMS WORKERS TORCH_FROM BASE_PYTHON VENV PY SHELL MAKEFLAGS
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
STRAY := $(addsuffix =...,$(filter-out $(OPTIONS),$(GIVEN))) $(filter-out $(TARGETS) $(READY) $(TOOLS),$(MAKECMDGOALS))
ifneq ($(strip $(STRAY)),)
$(error unknown: $(strip $(STRAY)). `make help` lists targets and variables; for your own memory store: make nightly STORE=path/to/memory.db)
endif

.DEFAULT_GOAL := help
.PHONY: $(TARGETS)

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(ROOT)/Makefile
	@echo
	@echo "  STORE=path     memory store to read: memory.db, corpus.jsonl(.gz), a folder, or env:NAME of a database (default: the bundled sample)"
	@echo "  SETS=\"...\"     labelled sets for make bench-quality, bench-peers and bench-verify (default: all)"
	@echo "  ARMS=\"...\"     which peers make bench-peers measures, noctuary among them (default: all)"
	@echo "  Q=\"...\"        question for make recall"
	@echo "  TORCH_FROM=... options of pip for PyTorch's CPU build, which tests need (docs/install.md)"

setup: $(TOOLS) ## Create .venv and install everything (once; again when pyproject.toml changes)

$(READY): $(ROOT)/pyproject.toml
	@test -x $(PY) || $(BASE_PYTHON) -m venv $(VENV)
	@echo "installing what a night needs into $(VENV) (a minute the first time)"
	@$(VENV)/bin/pip install --quiet --editable "$(ROOT)[pipelines]"
	@touch $(READY)

# The tests compare the default encoder with sentence-transformers, which needs PyTorch. For Linux the public index has it
# with CUDA, several GB; TORCH_FROM says where pip finds the CPU build instead (docs/install.md#other-models).
TORCH_FROM ?=
$(TOOLS): $(READY)
	@echo "installing what tests and checks need (a few minutes the first time)"
	@$(VENV)/bin/pip install --quiet torch==2.13.0 $(TORCH_FROM)
	@$(VENV)/bin/pip install --quiet --editable "$(ROOT)[pipelines,models,dev]"
	@touch $(TOOLS)

setup-ray: $(TOOLS) ## Also install the runner for several machines: the extra [ray], 1.5 GB
	@$(PY) -c "import ray, lance_ray, dagster_ray" 2>/dev/null || $(VENV)/bin/pip install --quiet --editable "$(ROOT)[ray]"

nightly: $(READY) ## Run the whole night on STORE and publish a snapshot
	@$(VENV)/bin/noctuary nightly $(if $(SOURCE),"$(SOURCE)",)

recall: $(READY) ## Search the published snapshot: make recall Q="..." [STORE=...]
	@$(VENV)/bin/noctuary recall "$(Q)" --explain $(if $(SOURCE),--store "$(SOURCE)",)

status: $(READY) ## Show the current snapshot
	@$(VENV)/bin/noctuary status $(if $(SOURCE),--store "$(SOURCE)",)

doctor: $(READY) ## Look for faults and say how to fix them
	@$(VENV)/bin/noctuary doctor $(if $(SOURCE),--store "$(SOURCE)",)

# The files of a suite go to the workers whole and in order: the long end-to-end ones first
# (docs/decisions/0001). What hangs outside Python ends with its worker, and only once.
test: $(TOOLS) test-server ## Run the default test suite (some 13 minutes on 2 cores): [WORKERS=2]
	@cd $(ROOT) && $(PY) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 1 -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# Installs nothing where this user may not; the tests that need a server then skip and say so.
test-server: $(TOOLS) ## Install the PostgreSQL server for the tests (Debian package), if needed
	@cd $(ROOT) && $(PY) -m tests.support.postgres

test-ray: setup-ray ## Run the tests of Ray: the same night with both runners, killed workers
	@cd $(ROOT) && $(PY) -m pytest -q -m slow tests/e2e/test_ray.py tests/rooms/work/test_ray.py tests/rooms/work/test_runner.py

# Installs some 2 GB of agents from npm into the temporary folder, once.
test-agents: $(TOOLS) ## Drive real agents with a scripted model and compare every turn (10 minutes, needs npm and tmux)
	@cd $(ROOT) && $(PY) -m pytest -q -m slow tests/agents

# The slow tests kill, measure and open browsers: one at a time. Those of test-ray are among them.
test-all: test setup-ray ## Run every test: kills, browser, real data sets, many examples of each property
	@cd $(ROOT) && $(PY) -m pytest -q -m slow --ignore tests/agents
	@cd $(ROOT) && $(PY) -m pytest -q -n $(WORKERS) --hypothesis-profile thorough tests/properties

mutants: $(TOOLS) ## Break the library in 60 places, one at a time; at least 57 must fail a test (an hour)
	@cd $(ROOT) && $(PY) -m tests.support.mutants

lint: $(TOOLS) ## Check style and formatting
	@cd $(ROOT) && $(VENV)/bin/ruff check $(CODE) && $(VENV)/bin/ruff format --check $(CODE)

format: $(TOOLS) ## Apply formatting and safe fixes
	@cd $(ROOT) && $(VENV)/bin/ruff check --fix $(CODE); $(VENV)/bin/ruff format $(CODE)

types: $(TOOLS) ## Check types strictly
	@cd $(ROOT) && $(VENV)/bin/pyright

defs: $(TOOLS) ## Load every asset, check, job, schedule and sensor, as Dagster does
	@cd $(ROOT) && . $(VENV)/bin/activate && dg check defs

bench: $(TOOLS) ## Measure cost, latency and speed up to a million memories (long) and write docs/benchmarks
	@cd $(ROOT) && $(PY) -m bench

bench-quality: $(TOOLS) ## Measure every arm on every labelled set (under an hour, resumable): [SETS="locomo ..."]
	@cd $(ROOT) && OPENBLAS_NUM_THREADS=1 $(PY) -m bench.suite $(if $(SETS),--sets $(SETS),)

bench-peers: $(TOOLS) ## Measure other stores over the same sets, each in its own environment [SETS="..."] [ARMS="mem0 ..."]
	@cd $(ROOT) && OPENBLAS_NUM_THREADS=1 $(PY) -m bench.peers $(if $(SETS),--sets $(SETS),) $(if $(ARMS),--arms $(ARMS),)

bench-verify: $(TOOLS) ## Check index and scores against bench/regressions: OK, OKish or FAIL [SETS="locomo ..."]
	@cd $(ROOT) && OPENBLAS_NUM_THREADS=1 $(PY) -m bench.verify $(if $(SETS),--sets $(SETS),)

bench-scale: $(TOOLS) ## Measure whole nights of 10,000 to 1,000,000 memories within 6 GB, and recall over them (hours)
	@cd $(ROOT) && $(PY) -m bench.measure scale --keep
	@cd $(ROOT) && OPENBLAS_NUM_THREADS=1 $(PY) -m bench.measure reading artifacts/scale/10000/store artifacts/scale/100000/store artifacts/scale/1000000/store --out docs/benchmarks/json

bench-tables: $(TOOLS) ## Generate the tables of docs/benchmarks from the committed JSON
	@cd $(ROOT) && $(PY) -m bench.tables

docs: setup-docs ## Serve the documentation at http://127.0.0.1:8000 and reload it as you write
	@cd $(ROOT) && $(PY) -m mkdocs serve

docs-build: setup-docs ## Build the documentation into artifacts/site; a broken link fails
	@cd $(ROOT) && $(PY) -m mkdocs build --quiet

setup-docs: $(TOOLS) ## Install the extra [docs] for `make docs`, 60 MB
	@$(PY) -c "import material, mkdocstrings" 2>/dev/null || $(VENV)/bin/pip install --quiet --editable "$(ROOT)[docs]"

ui: $(READY) ## Open the Dagster UI on STORE (http://127.0.0.1:3000): lineage, runs, schedule
	@$(VENV)/bin/noctuary ui $(if $(SOURCE),"$(SOURCE)",)

clean: ## Remove the virtual environment, caches and measurements (never a store)
	@rm -rf $(VENV) $(ROOT)/.pytest_cache $(ROOT)/.ruff_cache $(ROOT)/.hypothesis $(ROOT)/artifacts
	@find $(ROOT) -name __pycache__ -type d -prune -exec rm -rf {} +
