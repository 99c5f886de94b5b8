# `make demo` and `make test` each do all their own set-up, in .venv.

VENV := .venv
BIN := $(VENV)/bin
# another Python: make PYTHON=/path/to/python3.13 test
PYTHON ?=
PYTEST_ARGS ?=
# files of tests that run at the same time: most of their time is waiting for real clusters; JOBS=0 for one after the other
JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow bench lint format changelog clean

help:
	@echo "make demo       measure a real Dask computation; leaves jumper-demo/ with report.html"
	@echo "make test       all tests (PYTEST_ARGS='-k shim -x' for some)"
	@echo "make test-slow  the long rounds: kills, crowds, deaths of workers"
	@echo "make bench      the benchmarks, as a table"
	@echo "make lint       ruff, mypy, changelog fragments"
	@echo "make format     let ruff repair and format"
	@echo "make clean      remove .venv and what was built"

# Made anew when what is installed or compiled changes. pip 25.1 knows dependency groups.
$(VENV)/.installed: pyproject.toml setup.py $(wildcard ext/*.c ext/*.pyx ext/native/*.c ext/native/*.h jumper/include/*.h)
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
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

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
	rm -f jumper/monitor/_shim jumper/monitor/_spawn jumper/monitor/backends/native/*.so

# ---- the native engine under sanitizers; a C compiler with AddressSanitizer is all that they need -------------
.PHONY: fuzz asan

CC ?= cc
SECONDS_EACH ?= 60
SANITIZE := -std=c11 -Wall -Wextra -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Iext -Ijumper/include
FUZZ := tests/native/fuzz
# libFuzzer comes with clang (Debian and Ubuntu: apt install clang libclang-rt-dev); without it, a simple mutator
CLANG := $(firstword $(foreach name,clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14,$(shell command -v $(name) 2>/dev/null)))

fuzz:
	@mkdir -p build/fuzz/corpus
	@if [ -n "$(CLANG)" ] && $(CLANG) $(SANITIZE) -fsanitize=fuzzer -o build/fuzz/parsers $(FUZZ)/target.c \
	    ext/native/parse.c ext/native/node.c ext/native/procfile.c ext/native/segment.c -pthread; then \
	    build/fuzz/parsers -max_total_time=$(SECONDS_EACH) -max_len=16384 -artifact_prefix=build/fuzz/ \
	        -print_final_stats=1 build/fuzz/corpus $(FUZZ)/seeds; \
	else \
	    echo "no clang with libFuzzer: changing the seeds at random"; \
	    $(CC) $(SANITIZE) -o build/fuzz/parsers $(FUZZ)/target.c $(FUZZ)/mutate.c \
	        ext/native/parse.c ext/native/node.c ext/native/procfile.c ext/native/segment.c -pthread && \
	    build/fuzz/parsers $(SECONDS_EACH) $(FUZZ)/seeds; \
	fi

asan:
	@rm -rf build/asan && mkdir -p build/asan
	$(CC) $(SANITIZE) -o build/asan/drive $(FUZZ)/drive.c ext/native/*.c -pthread -ldl
	build/asan/drive $(or $(ASAN_SECONDS),20) 200 build/asan
