#!/bin/sh
# Makes sure that there is a Java for the local Kafka: the machine's own when it is 17 or newer, else the one from the
# Python package index. What is missing after that is said by `python -m deploy.kafka`.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python="$root/.venv/bin/python"
cd "$root"
if "$python" -c 'from deploy.kafka import java; java.find()' 2>/dev/null; then exit 0; fi
echo "Installing Java (once) ..." >&2
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/java.txt \
  >/dev/null 2>&1 || true
