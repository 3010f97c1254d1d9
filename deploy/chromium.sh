#!/bin/sh
# Makes sure that the distribution's Chromium is there for the end-to-end tests; without the right to install, says so.
set -eu
for name in chromium chromium-browser; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1 && exit 0
fi
echo "No Chromium here: the browser tests are skipped (on Debian: apt install chromium)" >&2
