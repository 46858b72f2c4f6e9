# Everything a developer or CI does, one target each. `make` alone describes them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
# Hundreds of the tests start programs: each would compile every module again if it kept none.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode

.DEFAULT_GOAL := help
.PHONY: help run test test-peers test-again check sim sim-long prove drills goals bench servers format proto lock wheel clean

help: ## describe the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-11s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Anabranch needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "Installing the locked dependencies into $(VENV): about a minute, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## start a standalone server in the foreground (ARGS="--port 6650 ...")
	@exec $(BIN)/anabranch standalone $(ARGS)

test: $(STAMP) ## every test that needs only Python
	$(PYTEST) -m "not peer" -n 2 --dist loadgroup $(ARGS)

test-peers: $(STAMP) servers ## the tests that need real servers from Maven or Go
	$(PYTEST) -m peer -n 2 --dist loadfile $(ARGS)

test-again: $(STAMP) ## ask the few tests that failed once more, alone
	$(BIN)/python -m anabranch.testing.second_chance

check: $(STAMP) ## style, types, layers, tidiness, targets of planted bugs: seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) tests/architecture tests/unit/testing/test_planted_bugs.py -q -n 2

sim: $(STAMP) ## simulate: make sim [SCENARIO=name] [SEEDS=50] [SEED=n replays one]
	$(BIN)/python -m anabranch.testing.simulate $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),50))

sim-long: $(STAMP) ## simulate on and on, and record the seeds (ARGS="--minutes 30 --total")
	$(BIN)/python -m anabranch.testing.sim_long $(ARGS)

drills: $(STAMP) ## long runs on real processes, recorded (ARGS="name --size small")
	$(BIN)/python -m anabranch.testing.drills $(ARGS)

prove: $(STAMP) ## plant each known bug and see the tests notice it (ARGS="name --all --small")
	$(BIN)/python -m anabranch.testing.prove $(ARGS)

goals: $(STAMP) ## which wanted behaviours are proven, claimed, open (ARGS="--group core --all")
	$(BIN)/python -m anabranch.testing.goals $(ARGS)

bench: $(STAMP) servers ## measure beside the peers (ARGS="name ...")
	$(BIN)/python -m benchmarks $(ARGS)

servers: $(STAMP) ## fetch the real servers once into a cache outside the tree
	$(BIN)/python -m anabranch.testing.servers fetch

format: $(STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(STAMP) ## generate src/anabranch/generated from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/anabranch/generated --pyi_out=src/anabranch/generated proto/*.proto

lock: $(STAMP) ## pin every dependency with its hashes
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --group dev pyproject.toml -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate requirements/oxia-client.in -o requirements/oxia-client.lock

wheel: $(STAMP) ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## remove what make made
	rm -rf $(VENV) dist build tests/.results .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
