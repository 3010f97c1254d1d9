#!/bin/sh
# Installs the distribution's Chromium for the end-to-end tests, preferably the headless shell, which loads a page with a
# quarter of the CPU time. Without permission to install, an existing one is used, or a message is printed.
# With "windows" it installs the whole browser: the shell keeps no page for "back".
set -eu
names="chromium-headless-shell chromium"
[ "${1:-}" != windows ] || names=chromium
command -v "${names%% *}" >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  for name in $names; do
    { apt-get update && apt-get install -y --no-install-recommends "$name"; } >/dev/null 2>&1 && exit 0
  done
fi
for name in chromium chromium-browser; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
echo "No Chromium here: the browser tests are skipped (on Debian: apt install chromium-headless-shell)" >&2
