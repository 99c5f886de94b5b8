# `make demo` and `make test` each do all their own set-up, in .venv.

VENV := .venv
BIN := $(VENV)/bin
# another Python: make PYTHON=/path/to/python3.13 test
PYTHON ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint format changelog clean

help:
	@echo "make demo     measure a real Dask computation; leaves jumper-demo/ with report.html"
	@echo "make test     all tests (PYTEST_ARGS='-m \"not slow\" -k shim' for some)"
	@echo "make bench    the benchmarks, as a table"
	@echo "make lint     ruff, mypy, changelog fragments"
	@echo "make format   let ruff repair and format"
	@echo "make clean    remove .venv and what was built"

# Made anew when what is installed or compiled changes. pip 25.1 knows dependency groups.
$(VENV)/.installed: pyproject.toml setup.py $(wildcard ext/*.c ext/*.pyx)
	@set -e; \
	found=""; \
	for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "jumper needs Python 3.11 or newer; tried: $(or $(PYTHON),python3.13 python3.12 python3.11 python3)." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3 $(or $(MAKECMDGOALS),test)" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$found cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$found" -V)"; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/jumper demo dask -o jumper-demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/towncrier build --draft --version next > /dev/null

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

changelog: $(VENV)/.installed
	$(BIN)/towncrier build --draft --version next

clean:
	rm -rf $(VENV) build dist jumper_workflows.egg-info .mypy_cache .pytest_cache .ruff_cache
	rm -f jumper/monitor/_shim jumper/monitor/backends/native/*.so
