#!/usr/bin/env bash
# Builds the C code under sanitizers and runs its tests: address and undefined
# together, then thread, for tests with threads (ctest's label `threads`).
# Address and undefined look at the Python extension, too, in some of its tests,
# and at more changed plans than other builds do.
#
#   tools/sanitize.sh [asan] [tsan]    both by default
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(pwd)/.venv/bin/python

# How long each part took, so that a total that grows shows where it does.
part_began=0
took() { # what
  echo "sanitize: $1 took $((SECONDS - part_began)) s"
  part_began=$SECONDS
}

# Options of sanitizers for the C tests stand in CMakePresets.json. The leak check of
# gcc 12 crashes where it walks over the thread-local storage of OpenMP's threads
# (use_tls=0). Kernels that the stand-in GPU runs are the same in every build, so that
# all share a cache. Of each family of the conformance suite some cases are enough here:
# the others differ in numbers above all, and each takes ten times as long.
run() { # preset
  { cmake --preset "$1" && cmake --build --preset "$1"; } >"build-$1.log" 2>&1 || {
    tail -50 "build-$1.log"
    exit 1
  }
  took "building $1"
  # Fails with what the failed tests said, and otherwise says little.
  ctest --preset "$1" >"build-$1/tests.log" || {
    grep -v ' Passed \|^ *Start ' "build-$1/tests.log"
    exit 1
  }
  tail -1 "build-$1/tests.log"
  took "testing $1"
}

# CPython is not built for a sanitizer, whose library it therefore loads first;
# what it keeps at its end is not ours to count as leaks.
run_python() {
  echo "sanitize: the Python extension"
  ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(cc -print-file-name=libasan.so)" \
    PYTHONPATH="$(pwd)/build-asan/python:$(pwd)" RABBET_TEST_SEEDS=0:20 \
    "$python" -m pytest -q -p no:cacheprovider tests/python/interface/test_objects.py \
    tests/python/interface/test_misuse.py tests/python/plugins/test_plugin_run.py \
    tests/python/plugins/test_plugin_tensor.py tests/python/interface/test_refit.py \
    tests/python/interface/test_debug_tensors.py tests/python/randomized/test_random_networks.py
  took "the Python extension"
}

# A plan may ask for any size: that the allocator says no is an answer. On the
# stand-in GPU programs are compiled for each new combination of types.
run_mutants() {
  local options=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=512
  echo "sanitize: changed plans"
  ASAN_OPTIONS=$options RABBET_THREADS=1 OMP_NUM_THREADS=1 \
    build-asan/tests/fuzz/plan_mutants 0 20000 tests/fuzz/corpus/plan
  ASAN_OPTIONS=$options RABBET_THREADS=1 OMP_NUM_THREADS=1 RABBET_FUZZ_CUDA=1 \
    RABBET_STAND_IN_CACHE="$(pwd)/build/tests/cuda_stand_in/cache" \
    build-asan/tests/cuda_stand_in/with_stand_in \
    build-asan/tests/fuzz/plan_mutants 0 4000 tests/fuzz/corpus/plan
  took "changed plans"
}

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
mkdir -p build/tests/cuda_stand_in/cache
[ "$#" -gt 0 ] || set -- asan tsan
for name in "$@"; do
  case $name in
    asan)
      run asan
      run_mutants
      run_python
      ;;
    tsan) run tsan ;;
    *)
      echo "sanitize: '$name' is neither asan nor tsan" >&2
      exit 2
      ;;
  esac
done
echo "sanitize: $SECONDS s in all"
