#!/usr/bin/env bash
# Reads a message store directory with the real RocketMQ store and prints what it finds as JSON lines.
#
#   verify_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3|5.5.1] [--out FILE] [--expect-messages N] [--quiet]
#                           STORE_DIR [name=value ...]
#
# STORE_DIR holds commitlog/, consumequeue/, index/, checkpoint (abort). The real store opens, recovers and reads a
# COPY of it; STORE_DIR is not changed. name=value are MessageStoreConfig properties and must give the file sizes the
# directory was written with, e.g.
#   mappedFileSizeCommitLog=65536 mappedFileSizeConsumeQueue=20000 maxHashSlotNum=512 maxIndexNum=2048
# (the golden cases list theirs in case.json under "config"). Output: as in tests/golden/README.md (expected.jsonl).
# Exit: 0 all was read; 2 the real store refused to load; 3 it loaded, but some entry could not be read back, or the
#       queues do not hold N messages (recovery silently cuts the log off at the first record it does not understand:
#       give --expect-messages, or compare the output with what was written);
#       1 other failure; 64 wrong use; 77 java, javac or mvn (or the jars) not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8 out=() quiet=0
while [ $# -gt 0 ]; do
  case "$1" in
    --rocketmq) ver="$2"; shift 2 ;;
    --out) out+=(--out "$2"); shift 2 ;;
    --expect-messages) out+=(--expect-messages "$2"); shift 2 ;;
    --quiet) quiet=1; shift ;;
    -h|--help) sed -n '2,/^set -u/{/^#/p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "unknown option $1" >&2; exit 64 ;;
    *) break ;;
  esac
done
[ $# -ge 1 ] || { echo "usage: see --help" >&2; exit 64; }
[ -d "$1" ] || { echo "no such directory: $1" >&2; exit 64; }
rmq_prepare "$ver"
if [ "$quiet" = 1 ]; then
  exec "${JAVA_CMD[@]}" Verify "${out[@]}" "$@" 2>/dev/null
fi
exec "${JAVA_CMD[@]}" Verify "${out[@]}" "$@"
