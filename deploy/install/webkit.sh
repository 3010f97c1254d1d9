#!/bin/sh
# Installs WebKitGTK's MiniBrowser, its driver and a display without a screen for `make engines`; without permission to
# install, prints a message.
set -eu
if command -v WebKitWebDriver >/dev/null && command -v Xvfb >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing WebKitGTK (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends webkit2gtk-driver xvfb; } >/dev/null 2>&1 && exit 0
fi
echo "No WebKit here: its stories are skipped (on Debian: apt install webkit2gtk-driver xvfb)" >&2
