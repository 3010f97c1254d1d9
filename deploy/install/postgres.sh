#!/bin/sh
# Installs PostgreSQL's programs for tests of the store on PostgreSQL; without permission to install, prints a message.
set -eu
PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)"
if command -v postgres >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing PostgreSQL (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  # Debian's package creates and starts a cluster; only the programs are needed. An existing configuration is kept.
  settings=/etc/postgresql-common/createcluster.conf
  if [ ! -e "$settings" ]; then
    mkdir -p "$(dirname "$settings")"
    printf '%s\n' "create_main_cluster = false" >"$settings"
  fi
  { apt-get update && apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold postgresql; } \
    >/dev/null 2>&1 || true
  PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)"
  if command -v postgres >/dev/null; then exit 0; fi
fi
echo "No PostgreSQL here: its tests are skipped (on Debian: apt install postgresql)" >&2
