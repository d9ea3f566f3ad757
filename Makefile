# The two commands: `make demo` and `make test`. On a fresh machine with Python >= 3.11 and make, they do everything.

PYTHON ?= $(shell scripts/find-python)
VENV := .venv
BIN := $(VENV)/bin
# Some machines forbid Python to keep what it has compiled. The tests start thousands of processes, and mutants as many runs of
# pytest: without it the whole takes nearly twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Servers and tests write a great many small files that nobody needs afterwards. In memory, where a system has room there, that
# costs a PostgreSQL a tenth of its start, and the whole a quarter of its time.
SCRATCH := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
unit serverless versions: export TMPDIR = $(SCRATCH)

.PHONY: help demo test check servers unit serverless versions server-versions libraries record soak bench docs dist clean

help:
	@echo "make demo      three ways to update a balance; only the last loses nothing"
	@echo "make test      everything that must hold: check, all tests, the oldest and the newest Python found"
	@echo "               SERVERS=none: what needs no server; names what it left out"
	@echo "make check     ruff, mypy --strict, import-linter; known holes in what we use"
	@echo "make versions  the tests on other versions of Python; VERSIONS=all for every one that is found"
	@echo "make server-versions   a short form of the suite on the oldest and the newest of each server; table in docs/guarantees.md"
	@echo "make record    every server of its own attacked for a minute or more; table in docs/proof.md"
	@echo "make libraries other people's locks under the same attack; table for docs/proof.md"
	@echo "make soak      the slow searches: SECONDS=600 by default"
	@echo "make docs      the site, in build/site: no network, and no warning"
	@echo "make dist      wheel and sdist, tried in a bare environment"
	@echo "make bench     every figure in the documentation, measured here"

demo:
	@PYTHONPATH=src $(PYTHON) -m holdfast demo

ifeq ($(SERVERS),none)
test: check serverless
else
test: check servers unit versions
endif

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/audit

servers: $(VENV)/ready
	$(BIN)/python -m holdfast.testing.servers install

# Tests mostly wait for servers, so six at a time are worth it on two cores; a file stays together, and so do its servers.
unit: $(VENV)/ready
	scripts/test-twice $(BIN)/python -n 6 --dist loadfile --no-loadscope-reorder --durations=30

# Without servers, and without a word that would hide it.
serverless: $(VENV)/ready
	$(BIN)/python -m pytest -n 4 --dist loadfile -m "not server"
	@echo "Left out, because they need a server (how many tests, in which file):"
	@scripts/left-out $(BIN)/python

versions: $(VENV)/ready
	scripts/test-versions $(BIN)/python $(VERSIONS)

server-versions: $(VENV)/ready servers
	$(BIN)/python scripts/server-versions

libraries: $(VENV)/ready servers
	scripts/make-venv $(PYTHON) $(VENV) '.[all,testing]' libraries
	$(BIN)/python -m holdfast.verify.libraries.matrix --seconds 20

record: $(VENV)/ready servers
	$(BIN)/python scripts/record

soak: $(VENV)/ready
	$(BIN)/holdfast simulate --seconds $(or $(SECONDS),600) --count docs/seeds.json
	HOLDFAST_ROUNDS=200 $(BIN)/python -m pytest --timeout=1800 tests/fenced/test_end_to_end.py tests/lockfree -k 'end_to_end or fire'
	HOLDFAST_ROUNDS=50 $(BIN)/python -m pytest --timeout=3600 tests/simulation/servers
	$(BIN)/python -m pytest tests/conformance/also_suite.py
	$(BIN)/python -m pytest tests/contrib/airflow_suite.py
	HOLDFAST_EXAMPLES=100 $(BIN)/python -m pytest --timeout=3600 tests/fenced/test_http_fuzz.py tests/security -m "not server" --deselect tests/security/test_mutants.py
	HOLDFAST_EXAMPLES=10 $(BIN)/python -m pytest --timeout=3600 tests/security/test_lying_rows.py
	HOLDFAST_WHOLE=1 $(BIN)/python -m pytest --timeout=3600 tests/conformance/test_zookeeper_certificates.py

bench: $(VENV)/ready
	scripts/make-venv $(PYTHON) $(VENV) '.[all,testing]' bench
	$(BIN)/python -m benchmarks --json build/bench.json

$(VENV)/ready: pyproject.toml scripts/make-venv scripts/group
	scripts/make-venv $(PYTHON) $(VENV) '.[all,testing]' dev
	@touch $@

docs: $(VENV)/ready
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "open build/site/index.html"

dist: $(VENV)/ready
	scripts/check-dist $(BIN)/python

clean:
	rm -rf build dist .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
