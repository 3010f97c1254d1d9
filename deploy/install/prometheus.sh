#!/bin/sh
# Unpacks the programs of Debian's package prometheus into .venv/prometheus, for the tests of what `diem metrics` prints.
# Nothing is installed or started, so no permission is needed. Where there is no such package, prints a message.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# As `make VENV=DIRECTORY` passes it on.
case ${VENV:=.venv} in /*) venv=$VENV ;; *) venv=$root/$VENV ;; esac
home="$venv/prometheus"
if [ -x "$home/promtool" ]; then exit 0; fi
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then exit 0; fi
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  echo "Downloading Prometheus (once) ..."
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  download() { (cd "$work" && apt-get download prometheus && dpkg-deb --extract prometheus_*.deb unpacked) >/dev/null 2>&1; }
  # Lists of packages may be missing, or older than the packages.
  if download || { [ "$(id -u)" = 0 ] && apt-get update >/dev/null 2>&1 && download; }; then
    mkdir -p "$home"
    # promtool last: it shows that both are there.
    mv "$work/unpacked/usr/bin/prometheus" "$home/prometheus" || exit 1
    mv "$work/unpacked/usr/bin/promtool" "$home/promtool" || exit 1
    exit 0
  fi
fi
echo "No Prometheus here: its tests are skipped (on Debian: apt install prometheus)" >&2
