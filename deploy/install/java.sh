#!/bin/sh
# Installs Java for the local Kafka from the Python package index, unless the machine's own is 17 or newer.
# `python -m deploy.kafka` reports what is missing afterwards.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# As `make VENV=DIRECTORY` passes it on.
export VENV="${VENV:-.venv}"
case $VENV in /*) venv=$VENV ;; *) venv=$root/$VENV ;; esac
python="$venv/bin/python"
cd "$root"
if "$python" -c 'from deploy.kafka import java; java.find()' 2>/dev/null; then exit 0; fi
echo "Installing Java (once) ..." >&2
deploy/install/packages.sh --no-deps --require-hashes -r requirements/java.txt >/dev/null 2>&1 || true
