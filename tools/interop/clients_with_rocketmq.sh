#!/usr/bin/env bash
# The real Java clients against a name server (clients/Clients.java says which scenarios there are), or mqadmin.
#   clients_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] HOST:PORT SCENARIO...
#   clients_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] --admin COMMAND ARGUMENT... , COMMAND ARGUMENT...
#   clients_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] --moving HOST:PORT      (clients/Moving.java says what it reads)
#   clients_with_rocketmq.sh [--rocketmq 4.9.8|5.3.3] --sending HOST:PORT ARGUMENT...    (clients/Sending.java measures sends)
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
ver=4.9.8
[ "${1:-}" != --rocketmq ] || { ver="$2"; shift 2; }
rmq_prepare_clients "$ver"
jvm=("${JAVA_CMD[0]}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m "${JAVA_CMD[@]:1}")
if [ "${1:-}" = --admin ]; then
  shift
  # mqadmin reads a file for its log there, and conf/tools.yml with the account that it signs for.
  export ROCKETMQ_HOME="${RMQ_INTEROP_HOME:-$rmq_cache/home}"
  mkdir -p "$ROCKETMQ_HOME/conf"
  for file in logback_tools.xml rmq.tools.logback.xml; do echo '<configuration/>' >"$ROCKETMQ_HOME/conf/$file"; done
  exec "${jvm[@]}" Admin "$@"
fi
# What is measured gets the compiler and the collector that a JVM takes by itself, and logs nothing.
if [ "${1:-}" = --sending ]; then
  shift
  quiet="$rmq_cache/quiet.xml"
  echo '<configuration/>' >"$quiet"
  exec "${JAVA_CMD[0]}" -Xms512m -Xmx512m "-Drocketmq.client.logRoot=$rmq_cache/home" -Drocketmq.client.logLevel=ERROR \
    "-Drmq.logback.configurationFile=$quiet" "${JAVA_CMD[@]:1}" Sending "$@"
fi
[ "${1:-}" != --moving ] || exec "${jvm[@]}" Moving "$2"
exec "${jvm[@]}" Clients "$@"
