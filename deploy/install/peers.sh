#!/bin/sh
# Installs the servers of others that `make bench-peers` measures into build/peers, without root and without starting any:
# Centrifugo by Go, nchan and Redis from Debian's packages, uWebSockets for Python (socketify). What cannot be
# installed is named in a file NAME.absent there, and skipped by the benchmark.
set -u
cd "$(dirname "$0")/../.."
CENTRIFUGO=v6.9.1
SOCKETIFY=0.0.31
peers="$PWD/build/peers"
mkdir -p "$peers/debian"
log="$peers/install.log"
: >"$log"

absent() {
  echo "$2" >"$peers/$1.absent"
  echo "No $1 here: $2" >&2
}

go_program() { # NAME MODULE VERSION
  test -x "$peers/$1-$3" && return
  rm -f "$peers/$1.absent"
  command -v go >/dev/null || { absent "$1" "there is no Go"; return; }
  echo "Compiling $1 (once) ..."
  if GOBIN="$peers" go install "$2@$3" >"$peers/go.log" 2>&1; then
    mv "$peers/$1" "$peers/$1-$3" && ln -sf "$1-$3" "$peers/$1"
  else
    absent "$1" "its module $3 cannot be built by Go here"
  fi
  cat "$peers/go.log" >>"$log"
}

debian() { # NAME FILE PACKAGE...
  name=$1 file=$2
  test -e "$peers/debian/$file" && return
  rm -f "$peers/$name.absent"
  shift 2
  echo "Unpacking $name (once) ..."
  (
    folder=$(mktemp -d) && cd "$folder" && apt-get download "$@" >>"$log" 2>&1
    for package in ./*.deb; do dpkg -x "$package" "$peers/debian" >>"$log" 2>&1; done
    rm -rf "$folder"
  )
  test -e "$peers/debian/$file" || absent "$name" "Debian's packages $* cannot be had here"
}

PATH="$PATH:/usr/local/go/bin"
go_program centrifugo github.com/centrifugal/centrifugo/v6 "$CENTRIFUGO"
debian nchan usr/lib/nginx/modules/ngx_nchan_module.so libnginx-mod-nchan
debian redis usr/bin/redis-server redis-server redis-tools libjemalloc2 liblzf1
if ! test -e "$peers/socketify/bin/python"; then
  rm -f "$peers/uWebSockets.absent"
  echo "Installing socketify (once) ..."
  { .venv/bin/python -m venv "$peers/socketify" && \
    "$peers/socketify/bin/python" -m pip install --quiet --disable-pip-version-check "socketify==$SOCKETIFY" && \
    "$peers/socketify/bin/python" -c "import socketify"; } >>"$log" 2>&1 || {
    rm -rf "$peers/socketify"
    absent uWebSockets "socketify cannot be installed here"
  }
fi
exit 0
