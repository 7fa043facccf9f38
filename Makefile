# Each target does all of its own set-up: it needs python3 (3.11 or newer) and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test lint check mutants clean help

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ipate needs Python 3.11 or newer; name one with: make PYTHON=python3.12 …"; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "the venv module is missing (Debian, Ubuntu: apt install python3-venv)"; exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing ipate"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing ipate and what its tests need"
	@$(PIP) -e '.[dev,torch,ray]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core      ## from made-up private data to a student, beside PATE; under a minute
	@rm -rf runs/demo
	@$(BIN)/ipate run demo.toml --out runs/demo

lint: $(VENV)/.dev       ## style, types, who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: $(VENV)/.dev      ## the tests alone
	$(BIN)/pytest -n auto

test: lint check         ## everything that must hold

mutants: $(VENV)/.dev    ## break the privacy code on purpose; every mutant must fail a test
	$(BIN)/python benchmarks/mutants.py

clean:                   ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov
	find . -name __pycache__ -prune -exec rm -rf {} +
