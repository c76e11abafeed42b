#!/usr/bin/env bash
# Installs what the build, the demo and the tests need: Debian packages (as root
# or through sudo, only those that are missing) and a virtual environment, .venv.
# Does nothing, quickly, where all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v dpkg-query >/dev/null || {
  echo "setup: this is no Debian: install what tools/packages.txt stands for," \
    "make .venv with tools/requirements.txt, and build with CMake" >&2
  exit 1
}
missing=()
while read -r package; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
    grep -q 'install ok installed' || missing+=("$package")
done < tools/packages.txt
if [ "${#missing[@]}" -gt 0 ]; then
  root=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "setup: these Debian packages are missing, and neither root nor" \
        "sudo is at hand to install them: ${missing[*]}" >&2
      exit 1
    }
    root="sudo"
  fi
  echo "setup: installing ${missing[*]}"
  $root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
fi

stamp=.venv/requirements.stamp
if ! cmp -s tools/requirements.txt "$stamp"; then
  echo "setup: making the virtual environment .venv"
  [ -x .venv/bin/python ] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -r tools/requirements.txt
  cp tools/requirements.txt "$stamp"
fi
