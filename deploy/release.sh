#!/bin/sh
# Makes a release in this checkout, and pushes nothing: release.sh X.Y.Z, or `make release VERSION=X.Y.Z`. The version in all
# files, the section of the changelog, the artefacts in dist, checked and installed, then one commit and its tag.
set -eu
cd "$(dirname "$0")/.."
version=${1:-}
current=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
fail() {
  echo "release: $1" >&2
  exit 2
}
echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || fail "name the version, as in: make release VERSION=1.2.3"
[ "$(printf '%s\n' "$current" "$version" | sort -V | tail -n 1)" != "$current" ] || fail "$version does not follow $current"
[ -z "$(git status --porcelain)" ] || fail "commit or remove what git status lists"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "there is a tag v$version"
# The tree was clean, so this undoes the release alone.
trap 'git restore .' EXIT
.venv/release/bin/bump-my-version bump --no-commit --no-tag --new-version "$version"
make --no-print-directory artefacts
git commit --quiet --all --message "release: publish version $version"
trap - EXIT
git tag --annotate --message "DIEM $version" "v$version"
echo "v$version is tagged here, its artefacts are in dist; how to publish them: docs/releases.md"
