# What people do with a checkout. `make help` lists it.

BUILD ?= build
PREFIX ?= /usr/local
PYTHON := $(abspath .venv/bin/python)
CMAKE_FLAGS ?=
# Made by tools/free_threaded.sh where there is such an interpreter.
FREE_THREADED = $(wildcard $(abspath .venv-free-threaded/bin/python))
# Warnings are errors for the compiler that CI has; others may warn of more.
STRICT := $(if $(filter 12,$(shell cc -dumpversion)),,--compile-no-warning-as-error)
# The package as it lies in the build tree.
RUN := PYTHONPATH=$(abspath $(BUILD)/python):$(abspath .) \
       PATH=$(abspath $(BUILD)/bin):$$PATH $(PYTHON)

.PHONY: help setup configure build libraries install demo test test-c test-python test-full test-random test-serving sanitize bench zoo \
        wheel wheel-free-threaded format lint clean

help:
	@echo "make demo      the main job, from an ONNX model to a checked result; no tests are built"
	@echo "make test      all tests that need no GPU"
	@echo "make test-full tests that take minutes: the wheel, in an empty environment"
	@echo "make test-random"
	@echo "               random networks, of the seeds that RABBET_TEST_SEEDS=FIRST:END names"
	@echo "make test-serving"
	@echo "               models in Ray, KServe, Dask and Spark, which it installs into .venv-serving"
	@echo "make bench     measure against other engines"
	@echo "make zoo       export real architectures, run them, and write docs/reference/models.md"
	@echo "make build     libraries, command and Python package in $(BUILD)/"
	@echo "make install   libraries, headers and command into PREFIX (/usr/local)"
	@echo "make wheel     a wheel in dist/"
	@echo "make wheel-free-threaded"
	@echo "               one more, for RABBET_FREE_THREADED_PYTHON or python3.13t or newer"
	@echo "make sanitize  the C tests under address, undefined and thread sanitizers"
	@echo "make format    lay out sources in C and CUDA that git tracks"
	@echo "make lint      formatting, Python and its types, includes and imports, exported symbols"

setup:
	@tools/setup.sh
	@tools/free_threaded.sh

configure: setup
	@cmake --preset release -B $(BUILD) $(STRICT) \
	  $(addprefix -DRABBET_FREE_THREADED_PYTHON=,$(FREE_THREADED)) $(CMAKE_FLAGS) >$(BUILD)-configure.log 2>&1 || (cat $(BUILD)-configure.log; exit 1)

build: configure
	@cmake --build $(BUILD)

# Without tests and benchmarks.
libraries: configure
	@tools/step.sh build $(BUILD)/build.log cmake --build $(BUILD) --target rabbet_all

install: libraries
	@cmake --install $(BUILD) --prefix $(PREFIX) >$(BUILD)/install.log
	@echo "installed into $(PREFIX); pip installs the Python package (make wheel)"

demo: libraries
	@$(RUN) examples/demo/demo.py

test: test-c test-python lint

test-c: build
	@cd $(BUILD) && ctest --output-on-failure -j2

# Bytecode is kept, whatever the environment says: tests start hundreds of processes.
test-python: build
	@PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q -n 2 --dist loadfile \
	  --no-loadscope-reorder -m "not full" tests examples

test-full: build
	@$(RUN) -m pytest -q -m full tests examples

test-random: build
	@$(RUN) -m pytest -q -n 2 tests/python/randomized

test-serving: libraries
	@tools/serving_setup.sh
	@PYTHONPATH=$(abspath $(BUILD)/python):$(abspath .) PATH=$(abspath $(BUILD)/bin):$$PATH \
	  .venv-serving/bin/python -m pytest -q tests/serving

sanitize: setup
	@tools/sanitize.sh

bench: build
	@$(RUN) -m bench.run $(BENCH)

zoo: build
	@tools/zoo_setup.sh
	@PYTHONPATH=$(abspath $(BUILD)/python):$(abspath .) nice -n 5 \
	  .venv-zoo/bin/python -m zoo --types fp32,mixed,fp16,bf16 --resume \
	  --table docs/reference/models.md $(ZOO)

wheel: setup
	@tools/wheel.sh

wheel-free-threaded: setup
	@tools/wheel.sh --free-threaded

lint:
	@$(PYTHON) tests/arrows.py
	@$(PYTHON) tests/imports.py
	@$(PYTHON) tests/exports/check.py $(BUILD)/lib
	@$(PYTHON) -m ruff check --quiet python tests bench tools zoo examples
	@$(PYTHON) -m mypy --no-error-summary
	@$(PYTHON) tests/abi/layout.py
	@if command -v clang-format >/dev/null; then \
	  git ls-files '*.c' '*.h' | xargs -n 64 -P 2 clang-format --dry-run -Werror && \
	  git ls-files '*.cu' '*.cuh' | \
	    xargs clang-format --style=file:.clang-format-cuda --dry-run -Werror; \
	else echo "lint: clang-format is not installed; layout not checked"; fi

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i
	@git ls-files '*.cu' '*.cuh' | xargs clang-format --style=file:.clang-format-cuda -i

clean:
	rm -rf $(BUILD) $(BUILD)-configure.log build-* dist
