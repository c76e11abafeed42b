#!/usr/bin/env bash
# Builds the C code under sanitizers and runs its tests: address and undefined
# together, then thread (without OpenMP's own threads, which it cannot follow).
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(pwd)/.venv/bin/python

run() { # name, sanitizers
  cmake -S . -B "build-$1" -G Ninja -DRABBET_SANITIZE="$2" -DRABBET_PYTHON=OFF \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPython3_EXECUTABLE="$python" >/dev/null
  cmake --build "build-$1" | tail -1
  (cd "build-$1" && ctest --output-on-failure -j2 --timeout 900 | tail -25)
}

export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
run asan address,undefined
TSAN_OPTIONS="halt_on_error=1 suppressions=$(pwd)/tools/tsan.supp" \
  RABBET_THREADS=1 OMP_NUM_THREADS=1 run tsan thread
