# The commands of this project. `make env` is all that the others need, and they call it themselves.
#
#   make demo       see it work on real data, and serve the answers     make test      all checks, all tests but crashes
#   make test-crashes   the tests that crash parts at each step        make test-random   all tests, in a random order
#   make bench      benchmarks in a quarter of an hour, or ONLY=row     make lint      the checks alone
#   make bench-full all benchmarks, some two hours
#   make endurance  the long proofs, or ONLY=word of their names        make format    let ruff lay out the code
#   make soak       all feeds under load for hours while every part is killed, or MINUTES=20
#   make mutants    does a test see each small change of the core? SAMPLE=100 of each module, ONLY=modules
#   make test-versions  some tests on older Postgres, other Pythons and Javas, or ONLY=word of a run
#   make evaluate   DATA=folder of data sets                            make {sketch,mate}-report DATA=folder: plots
#   make dist       the wheel, and an archive for Spark's executors elsewhere

.PHONY: env bench-full browser client test test-crashes test-random test-versions lint types rules format picture pictures demo bench endurance soak dist mutants evaluate sketch-report mate-report clean
.DEFAULT_GOAL := help
SHELL := /bin/sh
# Where it is set, each process of tests would compile the tools of tests anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Debian's python3 comes without pip and without what venv makes one of, so one is here.
PIP := $(BIN)/python $(wildcard tools/pip-*.whl)/pip install --quiet --disable-pip-version-check
# The first of these that is 3.11 or later builds the environment. The system's is compiled with a profile; one that was
# compiled without, as version managers do unless they are told, takes a quarter to a half longer for the same code.
PYTHONS := /usr/bin/python3 python3 python3.13 python3.12 python3.11
# Tests wait half of their time, for servers that start and commands that end: up to four at once on two cores, one for
# each 4 GB of memory.
WORKERS ?= $(shell awk '/^MemTotal/ { n = int($$2 / 4000000); print (n < 1 ? 1 : n > 4 ? 4 : n) }' /proc/meminfo)
IN_PARALLEL = -n $(WORKERS) --dist worksteal
# Kernels are kept by what is in the code: no other clone, and no task of Spark, compiles what one of them has compiled.
KERNELS = NUMBA_CACHE_DIR="$${XDG_CACHE_HOME:-$$HOME/.cache}/subsetd" \
  NUMBA_CACHE_LOCATOR_CLASSES=spark_jobs.kernel_cache.ByContent
# Long proofs, which have a short form; with that, tests that crash a part, at each of its steps or under load, or let it
# be away: minutes that a change seldom needs before it is complete.
PROOFS = tests/endurance tests/spark/test_many_refresh_crash.py
CRASHES = tests/endurance tests/integration/test_shards_away.py $(wildcard tests/*/test_*_crash.py)
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
SEED := $(SEED)

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '1,12p'

env: $(READY)

$(READY): requirements.lock pyproject.toml
	@python=; for name in $(PYTHONS); do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "subsetd needs Python 3.11 or later, found $$(python3 --version 2>&1 || true);" \
	    "install one, on Debian or Ubuntu: apt install python3.11" >&2; exit 1; \
	fi; \
	show='import sys; print("%d.%d" % sys.version_info[:2])'; \
	if [ "$$($(BIN)/python -c "$$show" 2>/dev/null)" != "$$("$$python" -c "$$show")" ]; then \
	  echo "Making the environment $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --without-pip --clear $(VENV) || exit 1; \
	fi
	@echo "Installing what requirements.lock names (some hundred megabytes, once)"
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@echo "Making an archive of Java's classes, with which Spark starts in half the time"
	-@$(BIN)/python -m spark_jobs.class_archive
	@touch $@

# Types take as long as all else: side by side on two cores. That all tests are found is a check, too, and compiles them
# once, which otherwise each process of tests does in a fresh folder.
lint: env
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types rules

types:
	$(BIN)/mypy

rules:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/vulture
	$(BIN)/deptry .
	@found=$$($(BIN)/python -m pytest --collect-only -q) || { echo "$$found"; exit 1; }

# The tests of the dashboard drive a real browser: the machine's, or where root may install it, Debian's.
browser: env
	$(BIN)/python -m tests.browser.chromium

test: lint browser
	$(KERNELS) $(BIN)/python -m pytest $(IN_PARALLEL) $(CRASHES:%=--ignore=%)

test-crashes: env
	$(KERNELS) $(BIN)/python -m pytest $(IN_PARALLEL) $(CRASHES)

test-random: env browser
	@echo "In the random order of SEED=$(SEED)"
	$(KERNELS) $(BIN)/python -m pytest $(IN_PARALLEL) --random-order --random-order-seed=$(SEED)

test-versions: env
	PYTEST_ADDOPTS="$(IN_PARALLEL)" $(BIN)/python -m tests.versions $(ONLY)

picture: env
	$(BIN)/python -m tools.architecture_picture

# Of the dashboard, for docs; it takes a minute.
pictures: env browser
	$(BIN)/python -m tests.browser.pictures

format: env
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

demo: env
	$(BIN)/subsetd demo

bench: env
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY),--short)

bench-full: env
	$(BIN)/python -m benchmarks

# The server of buckets, which one of the long proofs reads.
BUCKETS := build/s3/lib
$(BUCKETS): tests/s3/requirements.lock | $(READY)
	$(PIP) --require-hashes --no-deps --target $@ -r $<
	@touch $@

endurance: env $(BUCKETS)
	SUBSETD_ENDURANCE=1 $(BIN)/python -m pytest $(PROOFS) -ra $(if $(ONLY),-k $(ONLY))

# The wheel, and an archive of the environment for executors on other machines: docs/scale-out.md.
dist: env
	$(BIN)/python -m tools.make_dist

# Tools that nothing else needs stand beside the environment; what they share with it comes from there.
MUTANTS := build/mutants
$(MUTANTS)/lib: tests/mutants/requirements.lock | $(READY)
	$(PIP) --require-hashes --no-deps --target $@ -r $<
	@touch $@

MINUTES ?= 120
soak: env
	$(BIN)/python -m tests.endurance.soak --minutes $(MINUTES) --seed $(SEED) $(if $(RATE),--rate $(RATE))

mutants: env $(MUTANTS)/lib
	PYTHONPATH=$(MUTANTS)/lib nice -n 15 $(BIN)/python -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(ONLY)

evaluate: env
	@test -n "$(DATA)" || { echo "say where the data sets are: make evaluate DATA=folder" >&2; exit 2; }
	$(BIN)/python -m benchmarks.evaluate $(DATA) $(if $(RESULTS),--results $(RESULTS))

# What of the Python client follows from the HTTP API and from itself.
client: env
	$(BIN)/python tools/make_client.py

sketch-report: env
	$(BIN)/python -m benchmarks.sketch_report $(DATA)

mate-report: env
	@test -n "$(DATA)" || { echo "say where the lakes are: make mate-report DATA=folder" >&2; exit 2; }
	$(BIN)/python -m benchmarks.mate_report $(DATA)

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find service spark_jobs migrations tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
