# Two commands on a fresh machine: `make train` and `make test`. Both install once, into .venv.
PYTHON ?= python3
BIN := .venv/bin
# Where PyTorch is taken from beside the usual index, for builds other than its usual one.
TORCH_INDEX ?=
PIP_INSTALL := $(BIN)/python -m pip install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: install train test test-slow test-all lint docs clean

install: .venv/installed

train: .venv/installed
	$(BIN)/python rsac.py --env-id pendulum-p-v0

test: .venv/installed-dev
	$(BIN)/python -m pytest

# Tests of one xdist_group run on one worker, the others wherever there is time.
test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow --dist loadgroup --exitfirst

test-all: test test-slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: .venv/installed-dev
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -r requirements.txt
	touch $@

.venv/installed-dev: $(wildcard requirements-*.txt) .venv/installed
	$(PIP_INSTALL) -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv docs/_build
