#!/bin/sh
# Installs the distribution's Firefox for `make engines`; without permission to install, prints a message.
set -eu
if command -v firefox-esr >/dev/null || command -v firefox >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Firefox (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends firefox-esr; } >/dev/null 2>&1 && exit 0
fi
echo "No Firefox here: its stories are skipped (on Debian: apt install firefox-esr)" >&2
