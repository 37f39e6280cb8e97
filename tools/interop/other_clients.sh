#!/usr/bin/env bash
# A client of RocketMQ in another language against a broker: sends and consumes (others/).
#   other_clients.sh go|python|node NAMESRV TOPIC
# Exit: 77 the language or the client's package is not available here, with the reason on stderr.
# RMQ_INTEROP_CACHE: where packages are kept (default ~/.cache/rmq-interop). Works without network once filled.
# RMQ_INTEROP_PYTHON: the Python for which the package rocketmq is fetched (default python3).
set -u
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$here/interop_env.sh"
cache="${RMQ_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rmq-interop}"
mkdir -p "$cache/home" || rmq_skip "cannot make $cache/home"

# $1: kind, $2: what its program is called, then the command that fills the directory, which is renamed when it is complete:
# several of these scripts may run at once
fetch() {
  local made="$cache/$1" tmp
  command -v "$2" >/dev/null 2>&1 || rmq_skip "$2 is not installed"
  [ -d "$made" ] && return
  tmp="$(mktemp -d "$made.XXXXXX")" || exit 1
  if ! (cd "$tmp" && "${@:3}") >"$made.log" 2>&1; then
    tail -n 3 "$made.log" >&2
    rm -rf "$tmp"
    rmq_skip "the packages of the $1 client cannot be had (no network and not cached?), log: $made.log"
  fi
  mv -T "$tmp" "$made" 2>/dev/null || rm -rf "$tmp"
}

fetch_go() {
  cp "$here/others/main.go" . && go mod init others && go mod edit -require=github.com/apache/rocketmq-client-go/v2@v2.1.2 &&
    go mod tidy && go build -o client .
}
fetch_python() {
  "$python" -m venv --without-pip . &&
    "$python" -m pip --python ./bin/python install --retries 1 --timeout 30 rocketmq==0.4.4
}
fetch_node() { npm init -y && npm install --fetch-retries=1 --no-audit --no-fund --ignore-scripts ali-ons@3.12.0; }

run() { HOME="$cache/home" exec "$@"; }     # where they write logs

kind="${1:-}"
version="$(cat "$here/others/main.go" "$here/other_clients.sh" | cksum | cut -d' ' -f1)"
case "$kind" in
  go) fetch "go-$version" go fetch_go; run "$cache/go-$version/client" "${@:2}" ;;
  python)
    python="${RMQ_INTEROP_PYTHON:-python3}"
    at="python-$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')-$version"
    fetch "$at" "$python" fetch_python
    run "$cache/$at/bin/python" "$here/others/client.py" "${@:2}" ;;
  node)
    fetch "node-$version" node fetch_node
    export NODE_PATH="$cache/node-$version/node_modules"
    run node "$here/others/client.js" "${@:2}" ;;
  *) echo "$0: give go, python or node" >&2; exit 64 ;;
esac
