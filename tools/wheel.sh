#!/usr/bin/env bash
# Builds a wheel into dist/.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --wheel-dir dist .
ls -l dist
