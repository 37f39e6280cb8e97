#!/usr/bin/env bash
# RocketMQ's evaluator of SQL92 filters, which answers lines (filter/FilterEval.java says which).
#   filter_with_rocketmq.sh [--rocketmq 4.9.7|5.3.3]
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=5.3.3
[ "${1:-}" != --rocketmq ] || ver="$2"
rmq_prepare_filter "$ver"
exec "${JAVA_CMD[@]}" FilterEval
