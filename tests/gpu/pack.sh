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

# Both must be of one state of the sources.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unzip -q "${wheels[0]}" 'rabbet/lib/*' -d "$scratch"
if missing=$(LD_LIBRARY_PATH=$scratch/rabbet/lib ldd -r .gpu/conformance 2>&1 |
    grep 'undefined symbol'); then
  echo "pack: the wheel is older than $build; run make wheel" >&2
  echo "$missing" >&2
  exit 1
fi
du -sh .gpu
