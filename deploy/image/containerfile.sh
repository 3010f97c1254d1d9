#!/bin/sh
# Builds deploy/image/Containerfile where there is no registry, as root: containerfile.sh NAME:TAG [spark]. Its base is an
# image of Debian's packages. Needs the wheel in dist.
set -eu
cd "$(dirname "$0")/../.."
name=$1
spark=${2:-}
base=localhost/debian:bookworm
work=build/image
export BUILDAH_ISOLATION=chroot
deploy/install/containers.sh

mkdir -p "$work"
if [ ! -e "$work/debian.tar" ]; then
  echo "Installing Debian's base (once) ..."
  mmdebstrap --quiet --variant=minbase --format=tar \
    --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' bookworm "$work/debian.tar.new"
  mv "$work/debian.tar.new" "$work/debian.tar"
fi
container=$(buildah from scratch)
buildah add --quiet "$container" "$work/debian.tar" / >/dev/null
buildah commit --quiet --rm "$container" "$base" >/dev/null

set -- --file deploy/image/Containerfile --ignorefile deploy/image/Containerfile.dockerignore --build-arg "BASE=$base" --tag "$name"
if [ -n "$spark" ]; then set -- "$@" --build-arg SPARK=1; fi
if [ -n "${PIP_CERT:-}" ]; then
  # The authorities that pip trusts on this machine, for the build alone.
  printf '[global]\ncert = /run/pip/ca.crt\n' >"$work/pip.conf"
  set -- "$@" --volume "$PWD/$work/pip.conf:/etc/pip.conf:ro" --volume "$PIP_CERT:/run/pip/ca.crt:ro"
fi
buildah build --quiet "$@" . >/dev/null
echo "$name"
