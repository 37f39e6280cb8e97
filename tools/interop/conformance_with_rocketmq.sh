#!/usr/bin/env bash
# RocketMQ's own integration tests (rocketmq-test 5.5.0) against brokers that are there: conformance/BaseConf stands before
# RocketMQ's class of that name, which would start brokers in its own JVM.
#   conformance_with_rocketmq.sh NAMES_HOST:PORT CLUSTER BROKER,BROKER,BROKER CLASS...
# The same tests as RocketMQ runs them, against Java brokers in their JVM, which keep their stores below DIR:
#   conformance_with_rocketmq.sh real DIR CLASS...
# CLASS: below org.apache.rocketmq.test, as in client.producer.oneway.OneWaySendIT.
# Exit: 77 java, javac or mvn (or the jars) are not available here.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/interop_env.sh"
if [ "$1" = real ]; then
  rmq_prepare_conformance Conformance.java
  exec "${JAVA_CMD[0]}" -XX:+UseSerialGC -Xmx2g "${JAVA_CMD[@]:1:$((${#JAVA_CMD[@]} - 3))}" "-Duser.home=$2" \
    "-Djava.io.tmpdir=$2" "${JAVA_CMD[@]: -2}" Conformance "${@:3}"
fi
rmq_prepare_conformance Conformance.java org/apache/rocketmq/test/base/BaseConf.java
exec "${JAVA_CMD[0]}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m "-Dnames=$1" "-Dcluster=$2" "-Dbrokers=$3" \
  "${JAVA_CMD[@]:1}" Conformance "${@:4}"
