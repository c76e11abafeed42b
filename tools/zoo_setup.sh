#!/usr/bin/env bash
# Makes the virtual environment of the zoo, .venv-zoo, with the libraries whose models
# it exports. Does nothing, quickly, where it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv-zoo/requirements.stamp
cat tools/requirements.txt zoo/requirements.txt | cmp -s - "$stamp" && exit 0
echo "setup: making the virtual environment .venv-zoo"
[ -x .venv-zoo/bin/python ] || python3 -m venv .venv-zoo
.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check \
  -r tools/requirements.txt -r zoo/requirements.txt
cat tools/requirements.txt zoo/requirements.txt > "$stamp"
