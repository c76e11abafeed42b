#!/usr/bin/env bash
# Makes the virtual environment of the tests of serving systems, .venv-serving (2 GB).
# Does nothing, quickly, where it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv-serving/requirements.stamp
cat tools/requirements.txt tools/serving_requirements.txt | cmp -s - "$stamp" && exit 0
echo "setup: making the virtual environment .venv-serving"
[ -x .venv-serving/bin/python ] || python3 -m venv .venv-serving
# pip of Debian 12 warns of sdists without pyproject.toml (pyspark) unless told how to build them.
.venv-serving/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 \
  -r tools/requirements.txt -r tools/serving_requirements.txt
cat tools/requirements.txt tools/serving_requirements.txt > "$stamp"
