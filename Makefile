# Every target does its own set-up, in .venv; stamps inside it make a second call quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# -qq: only errors. Each set-up step says in one line what it does.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt
MAX_FILE_LINES := 400
# Tests in two processes, a file at a time, since the tests of a file share what was recorded and trained for them.
# In the order of collection: the files of tests/e2e take longest, and would otherwise be left for the end.
WORKERS ?= 2

.PHONY: help demo test check bench zoo slow soak fuzz clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   train Snake for half a minute, explain the run, film the agent"
	@echo "make test   the tests"
	@echo "make check  format, lint, types, imports, file sizes"
	@echo "make zoo    planted bottlenecks: hits, false alarms, predicted against measured gain"
	@echo "make bench  our parts beside their peers"
	@echo "make slow   the long tests"
	@echo "make fuzz   2,000 damaged runs, 1,000 damaged checkpoints, then guided by coverage for SECONDS (default 60)"
	@echo "make soak   collectors killed at random, 300 times and 30 times with emulators"
	@echo "make clean  remove caches and what the targets made; .venv stays"

$(BIN)/python:
	@echo "set-up: making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Torch comes first, so that nothing which needs it picks another build.
$(VENV)/.stamp-torch: constraints.txt | $(BIN)/python
	@echo "set-up: installing torch (large; a few minutes the first time)"
	@$(INSTALL) torch
	@touch $@

# The accelerators of the recorder are built by the install.
BUILT_FROM := pyproject.toml constraints.txt hatch_build.py $(shell find src -name '*.c')

$(VENV)/.stamp-train: $(BUILT_FROM) $(VENV)/.stamp-torch
	@echo "set-up: installing hotloop[train]"
	@$(INSTALL) -e ".[train]"
	@touch $@

$(VENV)/.stamp-dev: $(BUILT_FROM) $(VENV)/.stamp-torch
	@echo "set-up: installing hotloop[train,carracing,nes,sb3,dev]"
	@$(INSTALL) -e ".[train,carracing,nes,sb3,dev]"
	@touch $@

$(VENV)/.stamp-bench: $(BUILT_FROM) $(VENV)/.stamp-torch
	@echo "set-up: installing hotloop[carracing,nes,bench]"
	@$(INSTALL) -e ".[carracing,nes,bench]"
	@touch $@

# What a test needs besides Python: the compiler that builds our NES game. Installed where we may.
$(VENV)/.stamp-system: | $(BIN)/python
	@command -v cl65 > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
		&& echo "set-up: installing cc65" && apt-get -qq update && apt-get -qq install -y cc65 > /dev/null; } \
		|| echo "set-up: cc65 is MISSING (apt-get install cc65): the test that rebuilds games/runner is skipped"
	@touch $@

demo: $(VENV)/.stamp-train
	@rm -rf runs/demo
	$(BIN)/hotloop demo --out runs/demo

test: $(VENV)/.stamp-dev $(VENV)/.stamp-system
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

slow: $(VENV)/.stamp-dev $(VENV)/.stamp-system
	$(BIN)/python -m pytest -m slow

soak: $(VENV)/.stamp-dev
	$(BIN)/python bench/soak.py

# Atheris guides the damage by coverage. It is not among the development tools: it installs on few systems.
SECONDS ?= 60
fuzz: $(VENV)/.stamp-dev
	$(BIN)/python tests/fuzz/runs.py --count 2000
	$(BIN)/python tests/fuzz/checkpoints.py --count 1000
	@$(INSTALL) atheris || echo "fuzz: atheris is MISSING (pip install atheris): no guided fuzzing"
	$(BIN)/python tests/fuzz/guided.py -max_total_time=$(SECONDS)

check: $(VENV)/.stamp-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/make_rules.py --check
	@find src -name '*.py' -exec awk 'END { if (NR > $(MAX_FILE_LINES)) { \
		print FILENAME ": " NR " lines, more than $(MAX_FILE_LINES); split it by subject"; exit 1 } }' {} \; \
		| { ! grep . ; }

bench: $(VENV)/.stamp-bench
	$(BIN)/python bench/run_all.py

zoo: $(VENV)/.stamp-dev
	$(BIN)/python zoo/run.py

clean:
	rm -rf dist build runs/demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests zoo bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
