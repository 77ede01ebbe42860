# Every target sets up .venv itself; stamp files in it make the next call fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# -qq: only errors. Each set-up step prints one line.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt
MAX_FILE_LINES := 400
# Tests run in two processes, distributed by file, since the tests of a file share recorded and trained runs. They keep
# the order of collection: the files in tests/e2e take longest and should not start last.
WORKERS ?= 2
PYTEST_OPTIONS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Profiling is tested on these versions, too. There it has no torch: tests that need it are skipped.
OTHER_PYTHONS ?= 3.12 3.13
PROFILING_TESTS := tests/unit/spans tests/unit/profiling tests/property tests/e2e/test_numpy_only.py \
	$(addprefix --ignore=tests/unit/profiling/,trace/test_reading.py report/test_hostile_names.py)

.PHONY: help demo test check bench zoo slow soak fuzz clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   train Snake for half a minute, explain the run, write a GIF of the agent"
	@echo "make test   the tests"
	@echo "make check  format, lint, types, imports, file sizes"
	@echo "make zoo    planted bottlenecks: hits, false alarms, predicted and measured gains"
	@echo "make bench  compare with other libraries"
	@echo "make slow   the long tests"
	@echo "make fuzz   2,000 damaged runs, 1,000 damaged checkpoints, coverage-guided fuzzing for SECONDS (default 60)"
	@echo "make soak   kill collectors at random, 300 times, and 30 times with emulators"
	@echo "make clean  remove caches and build results, but not .venv"

$(BIN)/python:
	@echo "set-up: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Install torch first, so that no dependency selects another build of it.
$(VENV)/.stamp-torch: constraints.txt | $(BIN)/python
	@echo "set-up: installing torch (large; a few minutes the first time)"
	@$(INSTALL) torch
	@touch $@

# Installing builds the C extensions of the recorder.
BUILT_FROM := pyproject.toml constraints.txt hatch_build.py $(shell find src -name "*.[ch]")

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

# A test needs the compiler that builds our NES game. Install it if permitted.
$(VENV)/.stamp-system: | $(BIN)/python
	@command -v cl65 > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
		&& echo "set-up: installing cc65" && apt-get -qq update && apt-get -qq install -y cc65 > /dev/null; } \
		|| echo "set-up: cc65 is MISSING (apt-get install cc65): the test that rebuilds games/runner is skipped"
	@touch $@

demo: $(VENV)/.stamp-train
	@rm -rf runs/demo
	$(BIN)/hotloop demo --out runs/demo

test: test-all $(OTHER_PYTHONS:%=test-%)

.PHONY: test-all
.PRECIOUS: .venv-%/.stamp
test-all: $(VENV)/.stamp-dev $(VENV)/.stamp-system
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

# An interpreter of pyenv starts by its path, whichever version is selected. Without one there is no stamp.
.venv-%/.stamp: $(BUILT_FROM)
	@for each in python$* "$$(pyenv prefix $* 2> /dev/null)/bin/python$*"; do \
		"$$each" -m venv .venv-$* 2> /dev/null && break; done; \
	[ ! -x .venv-$*/bin/python ] || { echo "set-up: installing hotloop in .venv-$*, without torch"; \
		.venv-$*/bin/python -m pip --disable-pip-version-check -qq install -c constraints.txt \
		pytest hypothesis pytest-timeout pytest-xdist -e . && touch $@; }

test-%: .venv-%/.stamp
	@[ -e $< ] || echo "test: SKIPPED on Python $*: MISSING (no python$* starts here; pyenv install $*)" >&2
	[ ! -e $< ] || .venv-$*/bin/python -m pytest $(PYTEST_OPTIONS) $(PROFILING_TESTS)

slow: $(VENV)/.stamp-dev $(VENV)/.stamp-system
	$(BIN)/python -m pytest -m slow

soak: $(VENV)/.stamp-dev
	$(BIN)/python bench/soak.py

# Atheris does the coverage-guided fuzzing. It is not a development dependency: it installs on few systems.
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
