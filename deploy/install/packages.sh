#!/bin/sh
# Installs Python packages into .venv: packages.sh [--compile] ARGUMENTS, which are those of `pip install`.
# uv does it in a fifth of pip's CPU time. pip does it where its configuration names an index, a proxy or certificates of
# clients, which uv would not read, where uv cannot be installed, and where it fails.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# As `make VENV=DIRECTORY` passes it on.
case ${VENV:=.venv} in /*) venv=$VENV ;; *) venv=$root/$VENV ;; esac
python="$venv/bin/python"
uv="$venv/bin/uv"
cd "$root"
# Without it packages are compiled at the first import: most of those for tests never are.
compile=
if [ "$1" = --compile ]; then
  compile=yes
  shift
fi
if [ ! -x "$uv" ] && ! "$python" -m pip config list | grep -Eq '(index-url|no-index|proxy|client-cert|trusted-host)='; then
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/install/uv.txt \
    >/dev/null 2>&1 || true
fi
if [ -x "$uv" ]; then
  if [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"; fi
  # The authorities that pip trusts, too: those of the system, of which a company's proxy may be one.
  export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
  if "$uv" pip install --quiet --python "$python" ${compile:+--compile-bytecode} "$@"; then exit 0; fi
  echo "uv has failed, trying pip ..." >&2
fi
if [ -z "$compile" ]; then set -- --no-compile "$@"; fi
exec "$python" -m pip install --quiet --disable-pip-version-check "$@"
