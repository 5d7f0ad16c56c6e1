PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := $(VENV)/.installed-demo
DEV := $(VENV)/.installed-dev

.PHONY: demo test lint types unit bench clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[cli,sklearn,torch]'
	touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	$(BIN)/fedmoments encoders install mobilenet-v2
	$(BIN)/fedmoments encoders install squeezenet-1.1
	touch $@

demo: $(DEMO)
	$(BIN)/fedmoments demo

test: lint types unit

lint: $(DEV)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports

types: $(DEV)
	$(BIN)/mypy

# One BLAS thread a worker: two workers on two cores would otherwise spend their time waiting for each other.
unit: $(DEV)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n 2

bench: $(DEV)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest benchmarks -q -s -p no:xdist --benchmark-disable-gc

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
