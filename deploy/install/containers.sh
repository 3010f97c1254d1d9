#!/bin/sh
# What makes images and runs them, from Debian's packages: mmdebstrap, buildah, podman. Exit code 3: not here.
set -eu
missing=
for program in mmdebstrap buildah podman; do command -v "$program" >/dev/null || missing="$missing $program"; done
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing$missing (once) ..."
  export DEBIAN_FRONTEND=noninteractive
  # runc, because crun does not run on every machine without systemd.
  { apt-get update && apt-get install -y --no-install-recommends $missing runc; } >/dev/null 2>&1 || true
fi
for program in mmdebstrap buildah; do
  command -v "$program" >/dev/null || { echo "No $program here: no image (on Debian: apt install mmdebstrap buildah podman)" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "make image needs root: use deploy/image/Containerfile otherwise" >&2; exit 3; }
