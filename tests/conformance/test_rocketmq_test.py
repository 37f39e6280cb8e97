"""RocketMQ's own integration tests (rocketmq-test 5.5.0) run unchanged against three brokers of ours.

Nothing of them is here: the jars come from Maven, and one class of ours, BaseConf, stands before RocketMQ's, which would start
brokers in its own JVM (tools/interop/conformance). A class that asks such a broker object is in NOT_RUN, with the reason.
"""
import json
import subprocess
from pathlib import Path

import pytest

from tests.conformance.brokers import CLUSTER, NAMES, brokers

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "conformance_with_rocketmq.sh"
SECONDS = 3000
BROADCAST = "client.consumer.broadcast."
PARTS = {
    "sending": [
        "client.producer.oneway.OneWaySendIT", "client.producer.oneway.OneWaySendWithMQIT",
        "client.producer.oneway.OneWaySendWithSelectorIT", "client.producer.oneway.OneWaySendExceptionIT",
        "client.producer.async.AsyncSendExceptionIT", "client.producer.async.AsyncSendWithMessageQueueIT",
        "client.producer.async.AsyncSendWithMessageQueueSelectorIT", "client.producer.async.AsyncSendWithOnlySendCallBackIT",
        "client.producer.exception.msg.ChinaPropIT", "client.producer.exception.msg.MessageExceptionIT",
        "client.producer.exception.msg.MessageUserPropIT",
        "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT",
        "client.producer.querymsg.QueryMsgByIdExceptionIT", "client.producer.querymsg.QueryMsgByIdIT",
        "client.producer.querymsg.QueryMsgByKeyIT", "client.producer.transaction.TransactionalMsgIT",
        "smoke.NormalMessageSendAndRecvIT", "delay.NormalMsgDelayIT"],
    "order": [
        "client.producer.order.OrderMsgIT", "client.producer.order.OrderMsgRebalanceIT",
        "client.producer.order.OrderMsgDynamicRebalanceIT", "client.producer.order.OrderMsgWithTagIT"],
    "consuming": [
        "client.consumer.balance.NormalMsgDynamicBalanceIT", "client.consumer.balance.NormalMsgStaticBalanceIT",
        "client.consumer.cluster.DynamicAddAndCrashIT", "client.consumer.cluster.DynamicAddConsumerIT",
        "client.consumer.cluster.DynamicCrashConsumerIT", "client.consumer.filter.SqlFilterIT",
        "client.consumer.tag.MulTagSubIT", "client.consumer.tag.TagMessageWith1ConsumerIT",
        "client.consumer.tag.TagMessageWithMulConsumerIT", "client.consumer.tag.TagMessageWithSameGroupConsumerIT",
        "client.consumer.topic.MulConsumerMulTopicIT", "client.consumer.topic.OneConsumerMulTopicIT"],
    "broadcast": [
        BROADCAST + "normal.BroadcastNormalMsgNotReceiveIT", BROADCAST + "normal.BroadcastNormalMsgRecvCrashIT",
        BROADCAST + "normal.BroadcastNormalMsgRecvFailIT", BROADCAST + "normal.BroadcastNormalMsgRecvStartLaterIT",
        BROADCAST + "normal.BroadcastNormalMsgTwoDiffGroupRecvIT", BROADCAST + "normal.NormalMsgTwoSameGroupConsumerIT",
        BROADCAST + "order.OrderMsgBroadcastIT", BROADCAST + "tag.BroadcastTwoConsumerFilterIT",
        BROADCAST + "tag.BroadcastTwoConsumerSubDiffTagIT", BROADCAST + "tag.BroadcastTwoConsumerSubTagIT"],
}
# Classes that are not run, by what they need.
NOT_RUN = {
    "asks a BrokerController of its own JVM": [
        "client.producer.batch.BatchSendIT", "offset.LagCalculationIT", "offset.OffsetNotFoundIT", "offset.OffsetResetIT",
        "recall.RecallWithTraceIT", "recall.SendAndRecallDelayMessageIT", "route.CreateAndUpdateTopicIT"],
    "POP": [
        *(f"client.consumer.pop.{name}" for name in (
            "BatchAckIT", "NotificationIT", "PopBigMessageIT", "PopMessageAndForwardingIT", "PopOrderlyIT", "PopPriorityIT",
            "PopSubCheckIT")), "offset.OffsetResetForPopIT", "retry.PopConsumerRetryIT"],
    "gRPC": ["grpc.v2.ClusterGrpcIT", "grpc.v2.LocalGrpcIT"],
    "TLS": ["tls.TlsIT", "tls.TlsMixIT", "tls.TlsMix2IT"],
    "static topics": ["statictopic.StaticTopicIT"],
    "controllers, containers of brokers, DLedger": [
        "autoswitchrole.AutoSwitchRoleIntegrationTest", "dledger.DLedgerProduceAndConsumeIT",
        *(f"container.{name}" for name in (
            "AddAndRemoveBrokerIT", "BrokerFailoverIT", "BrokerMemberGroupIT", "GetMaxOffsetFromSlaveIT",
            "GetMetadataReverseIT", "PopSlaveActingMasterIT", "PullMultipleReplicasIT", "PushMultipleReplicasIT",
            "RebalanceLockOnSlaveIT", "ScheduleSlaveActingMasterIT", "ScheduledMessageIT", "SendMultipleReplicasIT",
            "SlaveBrokerIT", "SyncConsumerOffsetIT", "TransactionMessageIT"))],
    "no broker: they check RocketMQ's own classes": ["schema.SchemaTest", "lmq.TestBenchLmqStore"],
}
# Tests of the others that cannot pass, and why.
FAILS = {"smoke.NormalMessageSendAndRecvIT.testSynSendMessageWhenEnableBuildConsumeQueueConcurrently":
         "it stops brokerController1, a broker object of its JVM, and opens its store anew"}

# Tests of the others that RocketMQ leaves out itself (@Ignore).
IGNORED = {BROADCAST + "normal.BroadcastNormalMsgRecvFailIT.testStartTwoConsumerAndOneConsumerFail",
           BROADCAST + "order.OrderMsgBroadcastIT"}


@pytest.mark.slow           # minutes: a JVM whose tests wait for rebalancing
@pytest.mark.parametrize("part", PARTS)
def test_rocketmqs_own_tests(part, tmp_path):
    with brokers(tmp_path) as names:
        results = run(tmp_path, names, CLUSTER, ",".join(NAMES), *PARTS[part])
    check(part, results, {name for name in FAILS if name.rsplit(".", 1)[0] in PARTS[part]})


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_same_against_java_brokers(part, tmp_path):
    """What is not run here, RocketMQ does not run either; what FAILS names passes in a JVM that has the brokers."""
    check(part, run(tmp_path, "real", tmp_path, *PARTS[part]), set())


def part_of(test):
    return next(part for part, classes in PARTS.items() if test in classes or test.rsplit(".", 1)[0] in classes)


def run(directory, *arguments):
    with open(directory / "java.log", "wb") as log:
        done = subprocess.run([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=log, text=True, timeout=SECONDS)
    if done.returncode == 77:
        pytest.skip(f"RocketMQ's tests cannot run here: {(directory / 'java.log').read_text().strip()}")
    assert done.returncode == 0, (directory / "java.log").read_text(errors="replace")[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def check(part, results, expected):
    """expected: tests that fail."""
    ignored = {one["test"] for one in results if one["result"] == "ignored"}        # by RocketMQ itself
    said = {one["test"]: one["said"] for one in results if one["result"] == "failed"}
    passed = len(results) - len(said) - len(ignored)
    print(f"{part}: {passed} of {len(results)} tests pass; not run by RocketMQ: {sorted(ignored)}")
    seen = {one["test"] for one in results} | {one["test"].rsplit(".", 1)[0] for one in results}
    assert seen >= set(PARTS[part])
    assert said.keys() == expected, said
    assert ignored == {name for name in IGNORED if part_of(name) == part}
