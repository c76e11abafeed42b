#!/usr/bin/env bash
# Builds a wheel into dist/: for every CPython from 3.11 on, or, with
# --free-threaded, for one free-threaded CPython.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --free-threaded ]; then
  tools/free_threaded.sh --needed
  # The ONNX schema comes from .venv, so that the build has no environment of its
  # own: there is no `onnx` for each free-threaded CPython.
  rm -f dist/*-cp3*t-*.whl
  .venv-free-threaded/bin/python -m pip wheel --quiet \
    --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
else
  rm -rf dist
  .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir dist .
fi
ls -l dist
