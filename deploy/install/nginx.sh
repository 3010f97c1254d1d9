#!/bin/sh
# Installs nginx for the modes behind it; without permission to install, prints a message.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
if command -v nginx >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing nginx (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends nginx; } >/dev/null 2>&1 || true
  # Debian's package starts a server; only the program is needed.
  if command -v nginx >/dev/null; then
    if [ -s /run/nginx.pid ]; then nginx -s quit 2>/dev/null || true; fi
    exit 0
  fi
fi
echo "No nginx here: what needs it is skipped (on Debian: apt install nginx)" >&2
