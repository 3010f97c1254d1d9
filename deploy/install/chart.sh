#!/bin/sh
# Installs what checks the Helm chart into build/chart: helm, kubeconform, and Kubernetes' own source, which has the schemas
# of its objects. With `api`: an API server, which is compiled in some minutes, and etcd. Go and Debian's packages.
set -eu
cd "$(dirname "$0")/../.."
HELM=v3.22.0
KUBECONFORM=v0.7.0
bin="$PWD/build/chart/bin"
server="$PWD/tests/chart/apiserver"
command -v go >/dev/null || { echo "No Go here: the chart cannot be checked" >&2; exit 1; }
mkdir -p "$bin"

install() {
  test -x "$bin/$1-$3" && return
  echo "Compiling $1 (once) ..."
  GOBIN="$bin" CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" "$2@$3"
  mv "$bin/$1" "$bin/$1-$3"
  ln -sf "$1-$3" "$bin/$1"
}

install helm helm.sh/helm/v3/cmd/helm "$HELM"
install kubeconform github.com/yannh/kubeconform/cmd/kubeconform "$KUBECONFORM"

# In the version of go.mod, with the checksum of go.sum. It prints where that is.
cd "$server"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
go mod download k8s.io/kubernetes
go list -m -f '{{.Dir}}' k8s.io/kubernetes >"$bin/../kubernetes"

test "${1:-}" = api || exit 0
if ! test -x "$bin/kube-apiserver-$version"; then
  echo "Compiling kube-apiserver (once, some minutes) ..."
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$bin/kube-apiserver-$version" k8s.io/kubernetes/cmd/kube-apiserver
  ln -sf "kube-apiserver-$version" "$bin/kube-apiserver"
fi
if ! command -v etcd >/dev/null; then
  test "$(id -u)" = 0 && command -v apt-get >/dev/null || { echo "No etcd here (on Debian: apt install etcd-server)" >&2; exit 1; }
  export DEBIAN_FRONTEND=noninteractive
  # Debian's package starts a server; only the program is needed.
  { apt-get update && apt-get install -y --no-install-recommends etcd-server; } >/dev/null 2>&1
  systemctl disable --now etcd >/dev/null 2>&1 || true
fi
