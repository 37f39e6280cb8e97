#!/usr/bin/env bash
# The real broker over a store directory, listening on a port (broker/Serving.java). Ends with its input. Says when java
# begins ("exec SECONDS", since 1970) and when the broker listens ("ready").
#   broker_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] DIR PORT [name=value ...]
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8
[ "${1:-}" != --rocketmq ] || { ver="$2"; shift 2; }
rmq_prepare_broker "$ver" Serving
# Without a configuration it logs at level DEBUG, which no broker in service does.
quiet="$rmq_cache/quiet.xml"
echo '<configuration/>' >"$quiet"
JAVA_CMD+=("-Dlogback.configurationFile=$quiet" "-Drmq.logback.configurationFile=$quiet")
echo "exec $EPOCHREALTIME"
exec "${JAVA_CMD[0]}" -Xms1g -Xmx1g "${JAVA_CMD[@]:1}" Serving "$@"
