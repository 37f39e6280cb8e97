#!/usr/bin/env bash
# The timer messages of a real 5.3.3 broker over a store directory (broker/Timers.java says which steps there are).
#   timers_with_rocketmq.sh DIR STEP ... -- [name=value ...]
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
rmq_prepare_broker 5.3.3 Timers
exec "${JAVA_CMD[0]}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g "${JAVA_CMD[@]:1}" Timers "$@"
