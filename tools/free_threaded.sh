#!/usr/bin/env bash
# Makes .venv-free-threaded, of a free-threaded CPython with NumPy, in which the
# tests run the package once more and from which `make wheel-free-threaded` builds.
# The interpreter: RABBET_FREE_THREADED_PYTHON, else what is on the PATH (Debian's
# package python3.13-nogil, where there is one).
#
#   tools/free_threaded.sh [--needed]    --needed: fail where there is none
set -euo pipefail
cd "$(dirname "$0")/.."

python=${RABBET_FREE_THREADED_PYTHON:-}
for name in python3.15t python3.14t python3.13t; do
  [ -n "$python" ] || python=$(command -v "$name" || true)
done
if [ -z "$python" ]; then
  [ "${1:-}" = --needed ] || exit 0
  echo "free_threaded: no python3.13t or newer is on the PATH; name one by" \
    "RABBET_FREE_THREADED_PYTHON" >&2
  exit 1
fi
if ! "$python" -c 'import sysconfig, sys
sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'; then
  echo "free_threaded: $python is not free-threaded" >&2
  exit 1
fi

stamp=.venv-free-threaded/requirements.stamp
wanted=$("$python" -c 'import sys; print(sys.executable, sys.version)')
cmp -s <(echo "$wanted") "$stamp" && exit 0
echo "free_threaded: making .venv-free-threaded with $python"
if ! { "$python" -m venv --clear .venv-free-threaded &&
  .venv-free-threaded/bin/python -m pip install --quiet \
    --disable-pip-version-check 'numpy>=2.1' 'scikit-build-core>=1.0'; }; then
  rm -rf .venv-free-threaded
  echo "free_threaded: no environment can be made with $python" >&2
  [ "${1:-}" != --needed ] || exit 1
  exit 0
fi
echo "$wanted" >"$stamp"
