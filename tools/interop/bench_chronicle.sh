#!/usr/bin/env bash
# Measures Chronicle Queue in-process, one appender: one JSON line on stdout.
#
#   bench_chronicle.sh [--dir DIR] [body=BYTES] [seconds=S] [warmup=S] [settle=S] [capMiB=M] [pretouch=MiB]
#
# DIR must be on the disk to be measured; what is written there, in a new directory, is removed again.
# Exit 77 if java, javac or mvn (or the jars) are missing.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
base="${TMPDIR:-/var/tmp}"
while [ $# -gt 0 ]; do
  case "$1" in
    --dir) base="$2"; shift 2 ;;
    -h|--help) sed -n '2,/^set -u/{/^#/p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) break ;;
  esac
done
rmq_prepare_chronicle
dir="$base/rmqbench.$$" # of our own: it is removed with all that is in it
mkdir -p "$dir" || exit 1
"${JAVA_CMD[@]}" ChronicleBench "$@" "dir=$dir" 2>"$dir.log"
rc=$?
[ "$rc" = 0 ] || tail -n 20 "$dir.log" >&2
rm -rf "$dir" "$dir.log"
exit $rc
