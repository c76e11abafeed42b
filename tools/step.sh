#!/usr/bin/env bash
# Runs a command with its output in a file, and says one line; where it fails, the end of
# the file, too.
#
#   tools/step.sh NAME LOG COMMAND...
set -uo pipefail
name=$1 log=$2
shift 2
"$@" >"$log" 2>&1 || {
  code=$?
  tail -40 "$log"
  printf '%-9s failed (%s)\n' "$name" "$log"
  exit "$code"
}
printf '%-9s %d s (%s)\n' "$name" "$SECONDS" "$log"
