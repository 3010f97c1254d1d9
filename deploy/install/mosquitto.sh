#!/bin/sh
# Installs Mosquitto for tests of the MQTT source; without permission to install, prints a message.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
if command -v mosquitto >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Mosquitto (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  # Debian's package starts a server, unless a policy says otherwise; only the program is needed.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  { apt-get update && apt-get install -y --no-install-recommends mosquitto; } >/dev/null 2>&1 || true
  if command -v mosquitto >/dev/null; then exit 0; fi
fi
echo "No Mosquitto here: its tests are skipped (on Debian: apt install mosquitto)" >&2
