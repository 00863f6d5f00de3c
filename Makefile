# make demo: set up, solve an example, print the plan and write it to out/plan.json
# make results: replay the public traces in TRACES, write the figures into docs/results.md
# make test: set up, then lint, types, arrows and tests, those by WORKERS processes
# Needs Python 3.11 or newer, pip and make; another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 3
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Setuptools ships what an earlier build left in build/lib. (Strict editable installs live in build/.)
INSTALL := rm -rf build/lib && $(PIP) install --no-build-isolation

.PHONY: fuzz demo results test clean
TRACES ?= ../shared/data/traces

demo: $(VENV)/.run
	@$(INSTALL) --no-deps --force-reinstall .
	@mkdir -p out
	$(BIN)/trencadis solve instances/team_node.json -o out/plan.json
	@echo "The plan is in out/plan.json."

results: $(VENV)/.run
	@$(INSTALL) --no-deps --force-reinstall .
	$(BIN)/python benchmarks/replays.py --data $(TRACES) --write docs/results.md

# Installed plainly, not editable: type checkers can't see through an editable install, and so the
# tests see what users get. One worker more than two cores could keep busy: tests of live clusters
# mostly wait. A file stays with one worker, for its tests share a cluster or a server.
test: $(VENV)/.dev
	@$(INSTALL) --no-deps --force-reinstall .
	$(BIN)/ruff check .
	$(BIN)/mypy -p trencadis
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Draws of its own each time, where `test` repeats its own: what it finds becomes a test.
fuzz: $(VENV)/.dev
	@$(INSTALL) --no-deps --force-reinstall .
	$(BIN)/pytest -n $(WORKERS) --hypothesis-profile fresh -m "not slow"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install "setuptools>=77"
	@touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml
	@echo "Installing into $(VENV)"
	@$(INSTALL) .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "Installing into $(VENV)"
	@$(INSTALL) ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist out *.egg-info
