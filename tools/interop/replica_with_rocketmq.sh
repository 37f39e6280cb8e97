#!/usr/bin/env bash
# One side of a pair of real stores, a master or its slave (src/Replica.java says which commands it reads). Ends with its input.
#   replica_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] master|slave DIR HA_PORT [name=value ...]
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8
[ "${1:-}" != --rocketmq ] || { ver="$2"; shift 2; }
rmq_prepare "$ver"
exec "${JAVA_CMD[0]}" -Xms1g -Xmx1g "${JAVA_CMD[@]:1}" Replica "$@"
