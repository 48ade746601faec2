# The whole gate is one word. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KERNEL := $(wildcard $(foreach kind,pyx pxd h c,src/millstream/_accel/*.$(kind) src/millstream/_accel/*/*.$(kind)))
INSTALLED := $(VENV)/.installed
TEST_WORKERS ?= 2
SECONDS ?= 60
SEEDS ?= 200
START ?= 0
ROUNDS ?= 100
# Other processes, whole clusters in virtual time, thousands of examples of what unit tests cover:
# measuring coverage there costs minutes for nothing. They wait much, so one worker more fits in.
UNMEASURED := tests/simulation tests/integration/faults tests/integration/coordinator tests/docs \
  tests/types $(addprefix tests/properties/,client controller coordinator replica server storage)
WAITING_WORKERS ?= 3
KILLS ?= 200
MINUTES ?= 60
SEED ?= 1
# The oldest PySpark that is supported, in an environment that takes all else from that of the tests.
SPARK_OLDEST ?= 4.2.0
SPARK_ENV := build/spark-$(SPARK_OLDEST)
SPARK_TESTS ?= tests/unit/spark tests/spark
# Tests start hundreds of interpreters. Without bytecode each would compile Millstream anew: a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup build demo test check lint warnings types layers tidy unit plain sanitize interop fuzz simulate soak soak-cluster soak-memory soak-replication soak-spark spark-versions bench compare cycles generate docs format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create .venv and install Millstream with its kernel compiled

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Millstream needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): $(VENV)/bin/python pyproject.toml setup.py constraints.txt $(KERNEL)
	$(BIN)/pip install --quiet --constraint constraints.txt pip setuptools cython
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation \
	  --group dev --editable .
	@$(BIN)/python -m tools.installed
	@touch $@

build: $(VENV)/bin/python ## Compile the kernel in place, without reinstalling
	$(BIN)/python setup.py --quiet build_ext --inplace

demo: setup ## Show what Millstream does: clients in seconds, a Spark pipeline in two minutes
	@$(BIN)/python -m tools.demo
	@$(BIN)/python -m tools.demo_pipeline

test: setup check unit plain ## Everything that must hold: lint, types, layers, tests, coverage, plain mode

check: setup lint warnings types layers tidy ## Lint, warnings of C, types, import layers, tidy tests

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint src
	$(BIN)/codespell

warnings: setup build
	@command -v $(CC) > /dev/null || { echo "no C compiler: the kernel's C is not checked"; exit 0; }; \
	strict="$(CC) -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -c -o /dev/null -x c -I src/millstream/_accel \
	  -I $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')"; \
	for file in $(filter %.c,$(KERNEL)); do $$strict $$file || exit 1; done; \
	for file in $(filter %.h,$(KERNEL)); do \
	  $$strict -Wno-unused-function -Wno-unused-const-variable $$file || exit 1; done; \
	for file in $(patsubst %.pyx,build/kernel/%.c,$(filter %.pyx,$(KERNEL))); do \
	  $$strict -fsyntax-only $$file || exit 1; done

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

tidy: setup
	$(BIN)/pytest -q -p no:randomly tests/tidy

unit: setup
	$(BIN)/pytest -q -n $(WAITING_WORKERS) --dist worksteal -m "not interop" $(UNMEASURED)
	$(BIN)/pytest -q -n $(TEST_WORKERS) --dist worksteal -m "not interop" --ignore tests/tidy \
	  $(UNMEASURED:%=--ignore %) --cov --cov-report=
	$(BIN)/coverage report --include='*/millstream/protocol/*,*/millstream/records/*' --fail-under=100
	$(BIN)/coverage report --include='*/millstream/*' --fail-under=95 --format=total

plain: setup ## Run the behaviours of clients and broker without the compiled kernel
	MILLSTREAM_IMPL=python $(BIN)/pytest -q -n $(WAITING_WORKERS) --dist worksteal -m "not interop" \
	  tests/behaviours tests/integration/node/test_plain_mode.py

sanitize: setup ## Run the kernel's tests and fuzzers under ASan and UBSan, then TSan: SECONDS=60 each fuzzer
	$(BIN)/python -m tools.sanitize address --seconds $(SECONDS)
	$(BIN)/python -m tools.sanitize thread --seconds $(SECONDS)

interop: setup ## Check against the Java client and other foreign software
	$(BIN)/pytest -m interop tests

fuzz: setup ## Feed mutated frames, batches and Arrow arrays to the codecs, and answers to clients: make fuzz SECONDS=600
	$(BIN)/python -m tests.fuzz.frames --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz.batches --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz.arrow --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz.answers --seconds $(SECONDS)

simulate: setup ## Run seeded simulations with faults: make simulate SEEDS=2000 START=0
	$(BIN)/python -m tests.simulation.storage.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.storage.cleaner_run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.raft.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.coordinator.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.membership.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.producer.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.clients.reading_run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.clients.transactions_run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.cluster.run --seeds $(SEEDS) --start $(START)
	$(BIN)/python -m tests.simulation.cluster.records_run --seeds $(SEEDS) --start $(START)

soak: setup ## Kill brokers and break connections under load, again and again: make soak ROUNDS=100
	$(BIN)/python -m tests.integration.storage.kill --rounds $(ROUNDS)
	$(BIN)/python -m tests.integration.faults.kill --rounds $(ROUNDS)
	$(BIN)/python -m tests.integration.client.producer.sending_soak --seeds $(ROUNDS) --start $(START)

soak-memory: setup ## See that a broker's memory stays flat under everything at once: make soak-memory SECONDS=3600
	$(BIN)/python -m tests.integration.faults.memory --seconds $(SECONDS) $(ARGS)

soak-replication: setup ## Kill brokers of a cluster of three under load; nothing acknowledged is lost: ROUNDS=100 SEED=1
	$(BIN)/python -m tests.integration.cluster.replication_kill --rounds $(ROUNDS) --seed $(SEED)

soak-cluster: setup ## Kill, pause and cut off nodes of a cluster while topics come and go: MINUTES=60 SEED=1
	$(BIN)/python -m tests.integration.cluster.soak --minutes $(MINUTES) --seed $(SEED)

soak-spark: setup ## Kill Spark's tasks, drivers and brokers while they write exactly once: KILLS=200 SEED=1 ARGS=--from-topic
	$(BIN)/python -m tests.spark.exactly_once_soak --kills $(KILLS) --seed $(SEED) $(ARGS)

spark-versions: $(SPARK_ENV)/.installed ## Run Spark's tests and a short soak with the oldest PySpark supported
	$(SPARK_ENV)/bin/python -c 'import pyspark; print("PySpark", pyspark.__version__)'
	$(SPARK_ENV)/bin/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal -m "not interop" $(SPARK_TESTS)
	$(SPARK_ENV)/bin/python -m tests.spark.exactly_once_soak --kills 12 --seed $(SEED)

$(SPARK_ENV)/.installed: $(INSTALLED)
	$(BIN)/python -m venv $(SPARK_ENV)
	$(SPARK_ENV)/bin/pip install --quiet --no-deps pyspark==$(SPARK_OLDEST)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(SPARK_ENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	@touch $@

bench: setup ## Measure beside the peers: make bench ARGS=--quick
	for question in records protocol storage log_manager network replica broker_handlers \
	  embedded fairness data_frames broker coordinator cluster clients spark; do \
	  $(BIN)/python -m benchmarks.$$question $(ARGS) || exit 1; done

cycles: setup ## Open and close each kind of client 10,000 times: make cycles ARGS='--cycles 1000 Producer'
	$(BIN)/python -m tools.client_cycles $(ARGS)

compare: setup ## Measure beside another revision: make compare BEFORE=../before BENCH=broker ARGS=--without-kafka
	$(BIN)/python -m tools.compare_revisions $(BEFORE) $(BENCH) $(ARGS)

generate: setup ## Write protocol/messages anew from schema/
	$(BIN)/python -m tools.generate_messages

docs: setup ## Build the documentation as a site, in build/site
	$(BIN)/pip install --quiet --constraint constraints.txt --group docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/site

format: setup ## Format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what builds and tests left behind
	rm -rf build dist .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache src/*.egg-info
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/millstream/_accel/*/*.so $(INSTALLED)
