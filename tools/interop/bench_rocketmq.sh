#!/usr/bin/env bash
# Measures the real RocketMQ store in-process. JSON lines on stdout: one per repetition, then a summary line
# ("summary":true) with median, min and max of each figure.
#
#   bench_rocketmq.sh [--rocketmq 4.9.8|5.3.3|5.5.1] [--dir DIR] put|read|recover [key=value ...]
#   bench_rocketmq.sh [--rocketmq 4.9.8|5.3.3|5.5.1] [--dir DIR] --suite     the whole list of cases (about 40 minutes)
#
# DIR must be on the disk to be measured (not tmpfs); up to about 3 GiB is used in a new directory there and removed again.
# put:  mode=async|async_pool|async_warm|sync  threads=N  window=W (asynchronous puts under way per thread)
#       rate=PUTS (a second, of all threads: each put has a due time)  settle=S (before each stretch)
#       body=BYTES  props=full|lean  batch=N (MessageExtBatch)  seconds=S  capMiB=M  reps=R  index=true|false
#       pretouch=MiB (write and delete a file of that size before each run, in memory where there is room, so that a
#       virtual machine's memory is backed)
#       cfg.NAME=VALUE sets any MessageStoreConfig property.
# read: body=BYTES n=MESSAGES    recover: body=BYTES mib=MIB
# RMQ_BENCH_JAVA_OPTS: extra JVM options. Exit 77 if java or mvn (or the jars) are missing.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8 base="${TMPDIR:-/var/tmp}" suite=0
while [ $# -gt 0 ]; do
  case "$1" in
    --rocketmq) ver="$2"; shift 2 ;;
    --dir) base="$2"; shift 2 ;;
    --suite) suite=1; shift ;;
    -h|--help) sed -n '2,/^set -u/{/^#/p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) break ;;
  esac
done
[ "$suite" = 1 ] || [ $# -ge 1 ] || { echo "usage: see --help" >&2; exit 64; }
rmq_prepare "$ver"
dir="$base/rmqbench.$$" # of our own: it is removed with all that is in it
mkdir -p "$dir" || exit 1
case "$(stat -f -c %T "$dir")" in tmpfs|ramfs) echo "warning: $dir is on tmpfs, not on a disk" >&2 ;; esac
opts=(-Xms2g -Xmx2g -XX:+UseG1GC -XX:+AlwaysPreTouch -XX:MaxDirectMemorySize=8g ${RMQ_BENCH_JAVA_OPTS:-})
bench() { "${JAVA_CMD[0]}" "${opts[@]}" "${JAVA_CMD[@]:1}" Bench "$@" "dir=$dir" 2>>"$dir.log"; }
rc=0
if [ "$suite" = 0 ]; then
  bench "$@"; rc=$?
else
  while read -r line; do
    case "$line" in ''|'#'*) continue ;; esac
    # shellcheck disable=SC2086
    bench $line || { rc=1; echo "failed: $line (log: $dir.log)" >&2; }
  done < "$(dirname "${BASH_SOURCE[0]}")/bench_cases.txt"
fi
rm -rf "$dir"
[ "$rc" = 0 ] && rm -f "$dir.log"
exit $rc
