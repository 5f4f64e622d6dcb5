# The two commands are `make demo` and `make test`; each sets up what it needs.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo demo-backfill demo-upgrade test lint types contracts check bench clean requirements

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --editable .
	touch $@

demo: $(STAMP)
	$(BIN)/python -m examples.demo

# DRILL="--kill --order 2,1,3" and so on.
demo-upgrade: $(STAMP)
	$(BIN)/python -m examples.demo_upgrade $(DRILL)

demo-backfill: $(STAMP)
	$(BIN)/python -m examples.demo_backfill

# Two at once, on any machine: half of the time the tests wait for brokers and processes. PYTEST_ADDOPTS takes options.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Users check their programs with mypy or pyright: the examples pass both (tests/topology/test_typing.py has more).
types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python examples

contracts: $(STAMP)
	$(BIN)/lint-imports

requirements: $(STAMP)
	$(BIN)/python -m tests.requirement_report

check: lint types contracts test

# Every script of tests/bench prints a table; the end-to-end one makes environments for the peers on first use.
bench: $(STAMP)
	$(BIN)/python -m tests.bench.bench_end_to_end
	$(BIN)/python -m tests.bench.bench_operators_end_to_end
	for name in stages operators records wire state metrics log broker groups consumer_groups backfill restart warmup queries processes restore restore_beside latency memory; do $(BIN)/python -m tests.bench.bench_$$name || exit 1; done

clean:
	rm -rf $(VENV) .streamsrt
