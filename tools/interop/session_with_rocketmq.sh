#!/usr/bin/env bash
# One long-lived JVM with the real RocketMQ store that answers commands from standard input (see src/Session.java):
# verify, open, append, close, lock. For test suites: a JVM start costs more than most of the questions.
#
#   session_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3|5.5.1]
#
# Exit 77 if java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8
[ "${1:-}" = --rocketmq ] && { ver="$2"; shift 2; }
[ $# = 0 ] || { sed -n '2,/^set -u/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 64; }
rmq_prepare "$ver"
# -XX:TieredStopAtLevel=1 and the serial collector: most of a short session is spent starting.
exec "${JAVA_CMD[0]}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g "${JAVA_CMD[@]:1}" Session
