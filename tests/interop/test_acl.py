"""plain_acl.yml of a real broker, 4.9.8, and of ours: the same answers to the same requests, signed and not.

RocketMQ 5.3.3 has no aclEnable any more: it only moves the accounts of this file into a store of its own.
"""
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.broker.signer import Peer, Signer
from tests.broker.test_acl import RULES
from tests.interop.test_frames import real

pytest.importorskip("yaml")
USER, ADMIN = ("RocketMQ", "12345678a"), ("rocketmq2", "87654321b")
# Ours is stricter: what a real broker lets every account do.
STRICTER = {"lite pull of a topic that is denied", "a batch into a topic that is denied", "into a retry topic that is denied"}


@contextmanager
def ours(directory):
    ready = directory / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_store", "serve", str(directory / "ours"), "--profile", "test", "--listen", "127.0.0.1:0",
         "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o", "compat=4.9", "-o", "aclEnable=true", "-o",
         f"aclFile={directory / 'conf' / 'plain_acl.yml'}", "-o", "waitTimeMillsInSendQueue=60000"],
        stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert process.stdout.readline()
        yield json.loads(ready.read_text())["listen"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def requests(address):
    """(label, answer)."""
    pull = {"queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subVersion": 0, "subscription": "*"}
    with Peer(address) as peer, Signer(address, *USER) as user, Signer(address, *ADMIN) as admin, \
            Signer(address, USER[0], "wrong key") as wrong, Signer(address, "Nobody7", "12345678a") as nobody:
        yield "no key", peer.put("topicB")
        yield "no key, a code that is none", peer.ask(9999)
        yield "no account", nobody.put("topicB")
        yield "a wrong key", wrong.put("topicB")
        yield "a topic that is allowed", user.put("topicB", "gr\u00fcn".encode(), properties={"KEYS": "sch\u00f6n"})
        yield "a topic that is denied", user.put("topicA")
        yield "a topic for consumers", user.put("topicC")
        yield "a topic without a rule", user.put("other")
        yield "a batch into a topic that is denied", user.put("topicA", code=320, m="true")
        yield "into a retry topic that is denied", user.put("%RETRY%groupA")
        yield "an administrator's topic", admin.put("other")
        yield "make a topic", user.ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6)
        yield "delete a group", user.ask(207, groupName="G")
        yield "a heartbeat", user.beat(consumers={"groupB": {"topicB": "*", "%RETRY%groupB": "*"}})
        yield "a heartbeat of a group that is denied", user.beat(consumers={"groupA": {"topicB": "*"}})
        yield "a heartbeat for a topic that is denied", user.beat(consumers={"groupB": {"topicA": "*"}})
        yield "members", user.ask(38, consumerGroup="groupA")
        yield "pull of a topic that is denied", user.ask(11, consumerGroup="groupB", topic="topicA", **pull)
        yield "lite pull of a topic that is denied", user.ask(361, consumerGroup="groupB", topic="topicA", **pull)
        yield "pull for a group that is denied", user.ask(11, consumerGroup="groupA", topic="topicB", **pull)
        yield "commit", user.ask(15, consumerGroup="groupA", topic="topicB", queueId=0, commitOffset=0)
        yield "query", user.ask(12, topic="topicA", key="k", maxNum=1, beginTimestamp=0, endTimestamp=1)
        yield "send back", user.ask(36, group="groupB", originTopic="topicA", offset=0, delayLevel=0)
        yield "unregister", user.ask(35, clientID="c", producerGroup="P", consumerGroup="groupA")


def answers(address):
    found = {}
    for label, frame in requests(address):
        refused = frame.remark.startswith("org.apache.rocketmq.acl.common.AclException: ")
        # A real broker names the line of its source behind a comma.
        found[label] = (frame.code, frame.remark.partition(", org.apache.rocketmq.acl.")[0]) if refused else "let in"
    return found


@pytest.mark.slow           # a JVM with a broker
def test_who_may_do_what_is_as_with_a_real_broker(tmp_path, monkeypatch):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(RULES)
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    with real("4.9.8", tmp_path, "bindAddress=127.0.0.1", "brokerName=broker-a", "aclEnable=true",
              "waitTimeMillsInSendQueue=60000") as address:
        theirs = answers(address)
    with ours(tmp_path) as address:
        found = answers(address)
    assert {label for label in found if found[label] != theirs[label]} == STRICTER, (theirs, found)
    assert all(theirs[label] == "let in" and found[label] != "let in" for label in STRICTER)
