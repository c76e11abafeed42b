# What people do with a checkout. `make help` lists it.

BUILD ?= build
PYTHON := $(abspath .venv/bin/python)
CMAKE_FLAGS ?=
# The package as it lies in the build tree.
RUN := PYTHONPATH=$(abspath $(BUILD)/python):$(abspath .) \
       PATH=$(abspath $(BUILD)/bin):$$PATH $(PYTHON)

.PHONY: help setup build demo test test-c test-python sanitize bench wheel \
        format lint clean

help:
	@echo "make demo      the main job, from an ONNX model to a checked result"
	@echo "make test      all tests that need no GPU"
	@echo "make bench     measure against other engines"
	@echo "make build     libraries, command and Python package in $(BUILD)/"
	@echo "make wheel     a wheel in dist/"
	@echo "make sanitize  the C tests under address, undefined and thread sanitizers"
	@echo "make lint      formatting, include arrows, exported symbols"

setup:
	@tools/setup.sh

build: setup
	@cmake -S . -B $(BUILD) -G Ninja -DPython3_EXECUTABLE=$(PYTHON) \
	  $(CMAKE_FLAGS) >$(BUILD)-configure.log 2>&1 || (cat $(BUILD)-configure.log; exit 1)
	@cmake --build $(BUILD)

demo: build
	@$(RUN) examples/demo/demo.py

test: test-c test-python lint

test-c: build
	@cd $(BUILD) && ctest --output-on-failure -j2

test-python: build
	@$(RUN) -m pytest -q tests examples

sanitize: setup
	@tools/sanitize.sh

bench: build
	@$(RUN) -m bench.run $(BENCH)

wheel: setup
	@tools/wheel.sh

lint:
	@$(PYTHON) tests/arrows.py
	@$(PYTHON) tests/exports/check.py $(BUILD)/lib
	@if command -v clang-format >/dev/null; then \
	  git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror; \
	else echo "lint: clang-format is not installed; layout not checked"; fi

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(BUILD)-configure.log build-* dist
