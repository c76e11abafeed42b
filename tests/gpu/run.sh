#!/usr/bin/env bash
# Tests and measures on a machine with a GPU: see run.py beside this.
#   on the machine that builds:  tests/gpu/pack.sh     (fills .gpu/)
#   on the machine with a GPU:   tests/gpu/run.sh all  (needs .gpu/ and the checkout)
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" tests/gpu/run.py "$@"
