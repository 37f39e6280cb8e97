#!/usr/bin/env bash
# The bit maps of SQL92 filters of a real broker over a store directory (broker/BitMaps.java says which commands there are).
#   bit_maps_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] write|put|read DIR [name=value ...]
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8
[ "${1:-}" != --rocketmq ] || { ver="$2"; shift 2; }
rmq_prepare_broker "$ver" BitMaps
exec "${JAVA_CMD[0]}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g "${JAVA_CMD[@]:1}" BitMaps "$@"
