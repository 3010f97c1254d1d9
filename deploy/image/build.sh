#!/bin/sh
# Makes the image of deploy/image/Containerfile without a registry, from Debian's packages and Python's, as root:
# build.sh NAME:TAG [spark]. Needs the wheel in dist and the bill of materials in build.
set -eu
cd "$(dirname "$0")/../.."
name=$1
spark=${2:-}
export DEBIAN_FRONTEND=noninteractive BUILDAH_ISOLATION=chroot
deploy/install/containers.sh

work=build/image
base="$work/base${spark:+-spark}.tar"
mkdir -p "$work"
if [ ! -e "$base" ]; then
  echo "Installing Debian's packages (once) ..."
  # Java's package makes links to manuals, also where these are left out.
  mmdebstrap --quiet --variant=minbase --format=tar --include=python3,python3-venv,ca-certificates${spark:+,openjdk-17-jre-headless} \
    --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
    --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
    bookworm "$base.new"
  mv "$base.new" "$base"
fi

container=$(buildah from scratch 2>/dev/null)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah add --quiet "$container" "$base" / >/dev/null
root=$(buildah mount "$container")
site="$root/opt/diem/lib/python3.11/site-packages"
chroot "$root" /usr/bin/python3 -m venv --without-pip /opt/diem
if [ ! -x .venv/bin/uv ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/install/uv.txt
fi
install() {
  DIST_EXTRA_CONFIG="$PWD/requirements/build.cfg" .venv/bin/uv pip install --quiet --python-version 3.11 --target "$site" --no-deps "$@"
}
install --require-hashes -r requirements/run.txt
if [ -n "$spark" ]; then install --require-hashes -r requirements/spark.txt; fi
install dist/*.whl
# Programs of packages, and where the wheel was.
rm -rf "$site/bin" "$site"/diem_realtime-*.dist-info/direct_url.json
cat >"$root/opt/diem/bin/diem" <<'PROGRAM'
#!/opt/diem/bin/python
from deploy.cli import app

app()
PROGRAM
chmod 755 "$root/opt/diem/bin/diem"
chroot "$root" /opt/diem/bin/python -m compileall -q /opt/diem/lib >/dev/null || true
if [ -n "$spark" ]; then
  # Spark's connector to Kafka; the first use would download it.
  XDG_CACHE_HOME="$PWD/$work/cache" .venv/bin/python -m learning.spark
  cp -r "$work/cache" "$root/opt/diem/cache"
fi
chroot "$root" apt-get purge -y -qq python3-venv python3-pip-whl python3-setuptools-whl >/dev/null 2>&1 || true
rm -rf "$root/var/lib/apt/lists" "$root/var/cache"
mkdir -p "$root/usr/share/doc/diem" "$root/var/cache"
cp build/sbom.cdx.json "$root/usr/share/doc/diem/"
# Spark needs the name of its user.
chroot "$root" useradd --uid 10001 --home-dir /var/lib/diem --no-create-home --shell /usr/sbin/nologin diem
command install -d -o 10001 -g 10001 -m 0700 "$root/var/lib/diem"
buildah config --user 10001:10001 --workingdir /var/lib/diem --stop-signal SIGTERM \
  --entrypoint '["diem"]' --cmd --help \
  --env PATH=/opt/diem/bin:/usr/bin:/bin --env PYTHONDONTWRITEBYTECODE=1 --env DIEM_STATE_DIR=/var/lib/diem \
  --env XDG_CACHE_HOME=/opt/diem/cache \
  --label org.opencontainers.image.title=diem --label org.opencontainers.image.licenses=Apache-2.0 \
  --label "org.opencontainers.image.version=${name##*:}" "$container"
buildah umount "$container" >/dev/null
buildah commit --quiet "$container" "$name" >/dev/null
echo "$name"
