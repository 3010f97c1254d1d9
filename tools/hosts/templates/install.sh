#!/bin/sh
# Puts the files beside it in place on host <host>; as root. It starts and restarts nothing.
set -eu
cd "$(dirname "$0")"
id -u <user> >/dev/null 2>&1 || useradd --system --home-dir <state_dir> --shell /usr/sbin/nologin <user>
owned="install -o <user> -g <user>"
install -d -m 755 <config_dir>
[ ! -e etc/nginx.conf ] || install -m 644 etc/nginx.conf <config_dir>/
if [ -e keys/internal.key ]; then
  $owned -d -m 700 <state_dir>
  # systemd reads the variables as root, processes the keys and the sources as their user.
  install -m 600 etc/*.env <config_dir>/
  [ ! -e etc/diem.toml ] || $owned -m 600 etc/diem.toml <config_dir>/
  $owned -m 600 keys/*.key <state_dir>/
  # It changes by itself every day.
  [ ! -e keys/traffic.salt ] || [ -e <state_dir>/traffic.salt ] || $owned -m 600 keys/traffic.salt <state_dir>/
  for key in keys/token-keys/*.key; do
    [ -e "$key" ] || break
    [ -d <state_dir>/token-keys ] || $owned -d -m 700 <state_dir>/token-keys
    [ -e "<state_dir>/token-keys/${key##*/}" ] || $owned -m 600 "$key" <state_dir>/token-keys/
  done
fi
install -m 644 systemd/*.service systemd/*.target /etc/systemd/system/
for own in systemd/*.conf; do
  [ -e "$own" ] || break
  name=${own##*/}
  install -D -m 644 "$own" "/etc/systemd/system/diem@${name%.conf}.service.d/diem.conf"
done
systemctl daemon-reload
