#!/usr/bin/env bash
# Fills .gpu/ with what tests/gpu/run.sh needs on a machine without our build
# tools: a wheel, the conformance suite, libraries that it needs, and the C plugin
# that bench/gpu_calls.py measures.
#   tests/gpu/pack.sh [BUILD]     (a build folder with tests; default: build)
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
suite=$build/tests/conformance/conformance
[ -x "$suite" ] || { echo "pack: there is no $suite; run make build" >&2; exit 1; }
wheels=(dist/rabbet-*.whl)
[ -f "${wheels[0]}" ] || { echo "pack: there is no wheel in dist/; run make wheel" >&2; exit 1; }
plugin=$build/bench/libbench_gpu_calls.so
[ -f "$plugin" ] || { echo "pack: there is no $plugin; run make build" >&2; exit 1; }
rm -rf .gpu
mkdir -p .gpu/lib
cp "${wheels[@]}" "$suite" .gpu/
cp "$plugin" .gpu/lib/
strip .gpu/conformance
for library in libcmocka.so.0; do
  cp -L "$(ldd "$suite" | awk -v name="$library" '$1 == name { print $3 }')" .gpu/lib/
done

# All must be of one state of the sources, and no library may lack a part: each is
# checked here, as a machine with a GPU costs too much to find it out there.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unzip -q "${wheels[0]}" -d "$scratch"
PYTHONPATH=$scratch "${PYTHON:-.venv/bin/python}" -c 'import rabbet' || {
  echo "pack: the wheel cannot be imported; run make wheel" >&2; exit 1; }
for file in .gpu/conformance "$plugin" "$scratch"/rabbet/lib/librabbet*; do
  if missing=$(LD_LIBRARY_PATH=$scratch/rabbet/lib ldd -r "$file" 2>&1 |
      grep -E 'undefined symbol: rabbet_|not found'); then
    echo "pack: ${file##*/} does not fit the rest; run make build and make wheel" >&2
    echo "$missing" >&2
    exit 1
  fi
done
du -sh .gpu
