# Each target does all of its own set-up: it needs python3 (3.11 or newer) and make, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test lint check paper mutants docs site notebooks clean help

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
	@$(PIP) -e '.[dev,docs,torch,ray]'
	@touch $@ $(VENV)/.core $(VENV)/.docs

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing ipate and what its documentation needs"
	@$(PIP) -e '.[docs]'
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

paper: $(VENV)/.core     ## the comparison with other methods from its stored runs; python -m paper has the other pages
	@echo "makes results/compare.md from the stored runs: less than a minute, no training"
	@$(BIN)/python -m paper compare --device cpu --out results >/dev/null
	@$(BIN)/python -m paper --help

mutants: $(VENV)/.dev    ## break the privacy code on purpose; every mutant must fail a test
	$(BIN)/python benchmarks/mutants.py

docs: $(VENV)/.docs      ## build the documentation and serve it on http://127.0.0.1:8000
	@$(MKDOCS) serve

site: $(VENV)/.docs      ## build the documentation into build/site, which can be opened without a server
	@$(MKDOCS) build --strict

notebooks: $(VENV)/.docs ## run the tutorials again and keep what they print
	@$(BIN)/python docs/hooks/notebooks.py --write

clean:                   ## remove the environment and every cache
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov
	find . -name __pycache__ -prune -exec rm -rf {} +
