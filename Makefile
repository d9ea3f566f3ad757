# The two commands: `make demo` and `make test`. On a fresh machine with Python >= 3.11 and make, they do everything.

PYTHON ?= $(shell scripts/find-python)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test check servers unit versions soak bench clean

help:
	@echo "make demo      three ways to update a balance; only the last loses nothing"
	@echo "make test      everything that must hold: check, all tests, the oldest and the newest Python found"
	@echo "make check     ruff, mypy --strict, import-linter"
	@echo "make versions  the tests on other versions of Python; VERSIONS=all for every one that is found"
	@echo "make soak      the slow searches: SECONDS=600 by default"
	@echo "make bench     every figure in the documentation, measured here"

demo:
	@PYTHONPATH=src $(PYTHON) -m holdfast demo

test: check servers unit versions

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

servers: $(VENV)/ready
	$(BIN)/python -m holdfast.testing.servers install

# Tests mostly wait for servers, so four at a time are worth it on two cores; a file stays together, and so do its servers.
# What fails beside the others is run again by itself, and has to pass then; both are printed. Real servers on a machine that is short of
# processors miss a deadline now and then: that is worth reading, and no reason to throw the run away.
unit: $(VENV)/ready
	$(BIN)/python -m pytest -n 4 --dist loadfile || { echo "== what failed, once more, one by one"; \
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

versions: $(VENV)/ready
	scripts/test-versions $(BIN)/python $(VERSIONS)

soak: $(VENV)/ready
	$(BIN)/python -m holdfast.testing.simulation --seconds $(or $(SECONDS),600)
	HOLDFAST_ROUNDS=200 $(BIN)/python -m pytest --timeout=1800 tests/fenced/test_end_to_end.py tests/lockfree -k 'end_to_end or fire'

bench: $(VENV)/ready
	$(BIN)/python -m pip install -q -e '.[bench]'
	$(BIN)/python -m benchmarks

$(VENV)/ready: pyproject.toml scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV) '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
