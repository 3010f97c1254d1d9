#!/bin/sh
# Installs the Autobahn test suite into .venv/autobahn, where CPython 2.7 is (it never ran on Python 3); without one, prints
# a message. DIEM_PYTHON2 names an interpreter that is not on the path.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
requirements="$root/tests/conformance/requirements"
home="$root/.venv/autobahn"
if [ -e "$home/.installed" ] && [ -z "$(find "$requirements" -newer "$home/.installed")" ]; then exit 0; fi
python2=
for candidate in "${DIEM_PYTHON2:-}" python2.7 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7*/bin/python2.7; do
  # A shim of pyenv may be on the path without a version behind it.
  if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null; then
    python2=$(command -v "$candidate")
    break
  fi
done
if [ -z "$python2" ]; then
  echo "No CPython 2.7 here: the Autobahn test suite is left out (DIEM_PYTHON2 names one that is not on the path)" >&2
  exit 0
fi
echo "Installing the Autobahn test suite (once) ..." >&2
rm -rf "$home"
# Its extensions are compiled for one run of 20 s: optimising them would take longer than it gains.
install() {
  "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --target "$home/tools" -r "$requirements/virtualenv.txt" &&
    PYTHONPATH="$home/tools" "$root/.venv/bin/python" -m virtualenv --quiet --no-download --python "$python2" "$home/env" &&
    PYTHONWARNINGS=ignore CFLAGS="-O0 -g0" "$home/env/bin/python" -m pip install --quiet --no-deps --require-hashes \
      -r "$requirements/autobahn.txt"
}
mkdir -p "$root/build"
if install >"$root/build/autobahn.log" 2>&1; then
  touch "$home/.installed"
else
  echo "The Autobahn test suite cannot be installed, and is left out: build/autobahn.log" >&2
fi
