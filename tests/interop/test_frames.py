"""What a real broker answers and what ours answers, to the same requests in the same order, field by field.

A difference that is not in DIFFERENCES fails the test, and so does one that is there and is none any more.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from rmq_store.codec._codec import decode_record
from tests.broker.peer import Peer
from tests.interop.jvm import FETCH_SECONDS, wait_listens

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "broker_with_rocketmq.sh"
NOW = 1_700_000_000_000
LATER = (1 << 63) - 1
# "request: field" -> why ours differs, both as patterns. A field of a JSON body is body.a.b.
DIFFERENCES = {
    "send a large body: remark": "ours names the size and the option",
    "send with a field missing: *": "the real answer is that of a Java exception",
    "make a topic: remark": "RocketMQ leaves its first remark there: not set any response code",
    "send to no queue: remark": "ours does not print the whole configuration of the topic",
    "check bad SQL: remark": "each parser says in its own words what it expected",
    "pull by bad SQL: *": "the real broker delivers every message; ours refuses the filter",
    "topics: body.topicConfigTable.*": "topics of its own: ours makes those that it needs",
    "groups: body.subscriptionGroupTable.*": "groups of its own, and the defaults of fields that ours leaves out",
    "figures: *": "pools of threads, and names that changed between versions; 4.9 fails in its first moments",
}
DIFFERENCES_4 = {
    "commit of no topic: *": "the real broker keeps offsets of topics that do not exist; ours refuses them, as 5.3.3 does",
    "offsets: body.offsetTable.none@G.0": "of the same commit",
    "topic: *": "4.9 does not know 351; ours answers it",
    "topic that is none: *": "as above",
    "group: *": "4.9 does not know 352; ours answers it",
    "delay offsets: body.offsetTable*": "4.9 has an entry once it has delivered; ours from the first message",
}
DIFFERENCES_5 = {
    "send*: ext.transactionId": "ours gives no UNIQ_KEY to a message that has none: the record is as the client sent it",
    "pull*: body.2": "as above",
    "send an empty body: *": "the real broker fails with a NullPointerException; ours says that the message is illegal",
    "heartbeat: ext.*": "heartbeats of the second version are not offered; they are off in clients by default",
    "pull*: ext.*SysFlag": "no client reads these two",
    "topics: body.*apping*": "no static topics",
    "groups: body.forbiddenTable": "no groups are forbidden single topics",
    "group: body.groupRetryPolicy.type": "its default",
    "how far a topic is: body.topicPutTps": "mqadmin does not print it",
    "how far a group is: body.*.pullOffset": "ours keeps the committed offset alone, and shows it twice",
    "groups of a topic: body.groupList": "the real broker names a topic among them, which no group has",
    "offsets: body.groupTopicMap.*": "a slave does not read it",
    "delay offsets: body.dataVersion.*": "a slave takes the offsets alone",
}


def batch(*bodies: bytes) -> bytes:
    """The body of a batch."""
    found = b""
    for i, body in enumerate(bodies):
        properties = b"TAGS\x01A\x02UNIQ_KEY\x01B%d\x02" % i
        found += b"".join(n.to_bytes(4, "big") for n in (22 + len(body) + len(properties), 0, 0, 0, len(body))) + body
        found += len(properties).to_bytes(2, "big") + properties
    return found


def requests(peer: Peer, client: Peer):
    """(label, answer) of each request. client: a second connection, of a consumer."""
    yield from producing(peer)
    while peer.ask(12, topic="T", key="k1", maxNum=32, beginTimestamp=0, endTimestamp=LATER).code:
        pass                            # dispatched, and indexed
    yield from pulling(peer, client)
    yield from keeping(peer, client)
    yield from querying(peer)
    yield from administering(peer)
    yield "unregister", client.ask(35, clientID="c1", producerGroup="P", consumerGroup="G")


def delays(peer):
    """5.3.3 looks at the levels a second after its start; 4.9 names none before it has delivered."""
    pause = threading.Event()
    for _ in range(30):
        found = peer.ask(45)
        if b'"offsetTable":{}' not in found.body.replace(b" ", b""):
            break
        pause.wait(0.1)
    return found


def producing(peer):
    tags = {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "U1", "WAIT": "true"}
    long_names = {"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
                  "sysFlag": 0, "bornTimestamp": NOW, "flag": 0, "properties": "a\x01b", "reconsumeTimes": 0,
                  "unitMode": False}
    yield "send", peer.put(body=b"one", properties=tags)
    yield "send again", peer.put(body=b"two", properties=tags | {"TAGS": "B"})
    yield "send by long names", peer.ask(10, b"three", **long_names)
    yield "send an empty body", peer.put(body=b"")
    yield "send without properties", peer.put(queue=1)
    yield "send to no queue", peer.put(queue=99)
    yield "send to an illegal topic", peer.put("no spaces")
    yield "send to a system topic", peer.put("SCHEDULE_TOPIC_XXXX")
    yield "send to a long topic", peer.put("t" * 128)
    yield "send without a default topic", peer.put("U", c="none")
    yield "send a large body", peer.put(body=b"x" * ((4 << 20) + 1))
    yield "send a batch", peer.put(body=batch(b"b0", b"b1"), code=320, m="true", queue=2)
    yield "send with a delay level", peer.put(properties=tags | {"DELAY": "18"}, queue=3)
    yield "send half a transaction", peer.put(properties=tags | {"TRAN_MSG": "true", "PGROUP": "P"}, f=4)
    yield "send with a field missing", peer.ask(310, b"x", a="P")
    yield "send into a retry topic of no group", peer.put("%RETRY%none", j=0)
    yield "unknown request", peer.ask(9999)


def pulling(peer, client):
    yield "heartbeat", client.beat("c1", producers=["P"], consumers={"G": {"T": "*"}})
    pushed = client.push()
    yield "pushed: members changed", pushed
    yield "members of a group", peer.ask(38, consumerGroup="G")
    yield "members of no group", peer.ask(38, consumerGroup="none")
    pull = {"subscription": "*", "bits": 4}
    yield "pull", client.pull(offset=0, bits=0)
    yield "pull one", peer.pull(offset=0, maxMsgNums=1, **pull)
    yield "pull by a tag", peer.pull(offset=0, bits=4, subscription="B")
    yield "pull what does not match", peer.pull(offset=0, bits=4, subscription="none")
    yield "pull at the end", peer.pull(offset=3, bits=4, subscription="*")
    yield "pull behind the end", peer.pull(offset=70, bits=4, subscription="*")
    yield "pull an empty queue", peer.pull(queue=3, offset=0, **pull)
    yield "pull of no group", peer.pull("none2", bits=0)
    yield "pull of another topic", client.pull("G", "TBW102", bits=0)
    yield "pull of no topic", peer.pull(topic="none", **pull)
    yield "pull of no queue", peer.pull(queue=70, **pull)
    yield "pull by a newer subscription", client.pull(bits=0, subVersion=7)
    yield "pull by bad SQL", peer.pull(bits=4, subscription="a >", expressionType="SQL92")
    yield "pull by SQL", peer.pull(bits=4, subscription="TAGS = 'B'", expressionType="SQL92")


def keeping(peer, client):
    """Offsets, locks, filters and messages that come back."""
    yield "offset that nobody committed", peer.ask(14, consumerGroup="G", topic="T", queueId=0)
    yield "offset, without zero", peer.ask(14, consumerGroup="G", topic="T", queueId=1, setZeroIfNotFound=False)
    yield "offset of no group", peer.ask(14, consumerGroup="none3", topic="T", queueId=0)
    yield "commit", peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=2)
    yield "offset", peer.ask(14, consumerGroup="G", topic="T", queueId=0)
    yield "commit of no topic", peer.ask(15, consumerGroup="G", topic="none", queueId=0, commitOffset=2)
    yield "end of a queue", peer.ask(30, topic="T", queueId=0)
    yield "end of a queue of no topic", peer.ask(30, topic="none", queueId=0)
    yield "begin of a queue", peer.ask(31, topic="T", queueId=0)
    yield "offset by time 0", peer.ask(29, topic="T", queueId=0, timestamp=0)
    yield "offset by a time to come", peer.ask(29, topic="T", queueId=0, timestamp=NOW * 2)
    yield "earliest time", peer.ask(32, topic="T", queueId=0)
    yield "earliest time of an empty queue", peer.ask(32, topic="T", queueId=70)
    queues = [{"brokerName": "broker-a", "queueId": n, "topic": "T"} for n in (0, 1)]
    yield "lock", client.ask(41, {"clientId": "c1", "consumerGroup": "G", "mqSet": queues})
    yield "lock what another has", peer.ask(41, {"clientId": "c2", "consumerGroup": "G", "mqSet": queues})
    yield "unlock", client.ask(42, {"clientId": "c1", "consumerGroup": "G", "mqSet": queues})
    subscription = {"topic": "T", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1}
    yield "check SQL", peer.ask(46, {"clientId": "c", "group": "G", "subscriptionData": subscription})
    bad = subscription | {"subString": "a >"}
    yield "check bad SQL", peer.ask(46, {"clientId": "c", "group": "G", "subscriptionData": bad})
    yield "send back what is not there", peer.ask(36, group="G", offset=LATER, delayLevel=3, originTopic="T", unitMode=False)
    yield "send back of no group", peer.ask(36, group="%none", offset=0, delayLevel=3, originTopic="T", unitMode=False)


def querying(peer):
    query = {"topic": "T", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": LATER}
    yield "query by key", peer.ask(12, key="k1", **query)
    yield "query by id", peer.ask(12, key="U1", _UNIQUE_KEY_QUERY=True, **query)
    yield "query of no key", peer.ask(12, key="none", **query)
    yield "view", peer.ask(33, offset=0)
    yield "view what is not there", peer.ask(33, offset=LATER)


def administering(peer):
    topic = {"defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
             "topicSysFlag": 0, "order": False}
    yield "make a topic", peer.ask(17, topic="Made", **topic)
    yield "make an illegal topic", peer.ask(17, **topic | {"topic": "a b"})
    yield "make a system topic", peer.ask(17, topic="TBW102", **topic)
    yield "topics", peer.ask(21)
    yield "topic", peer.ask(351, topic="Made")
    yield "topic that is none", peer.ask(351, topic="none")
    yield "delete a topic", peer.ask(215, topic="Made")
    yield "delete a system topic", peer.ask(215, topic="TBW102")
    yield "make a group", peer.ask(200, {"groupName": "Made", "retryMaxTimes": 3})
    yield "groups", peer.ask(201)
    yield "group", peer.ask(352, group="Made")
    yield "delete a group", peer.ask(207, groupName="Made")
    yield "how far a topic is", peer.ask(202, topic="T")
    yield "how far no topic is", peer.ask(202, topic="none")
    yield "how far a group is", peer.ask(208, consumerGroup="G", topic="T")
    yield "groups of a topic", peer.ask(300, topic="T")
    yield "offsets", peer.ask(43)
    yield "delay offsets", delays(peer)
    yield "options", peer.ask(26)
    yield "change an option", peer.ask(25, b"maxTransferCountOnMessageInMemory=100")
    yield "figures", peer.ask(28)
    yield "figures of nothing", peer.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="none")
    yield "consumers", peer.ask(203, consumerGroup="G")
    yield "consumers of no group", peer.ask(203, consumerGroup="none")
    yield "producers", peer.ask(204, producerGroup="P")
    yield "producers of no group", peer.ask(204, producerGroup="none")
    yield "running info of no client", peer.ask(307, consumerGroup="G", clientId="none", jstackEnable=False)
    yield "timer check point", peer.ask(60)
    yield "timer metrics", peer.ask(61)
    yield "recall", peer.ask(370, producerGroup="P", topic="T", recallHandle="none")


# ---- a frame as fields

TIMES = re.compile(r"(?i)(timestamp|mills|millis|time$|counter|tps|avgpt|version|putlatency|now|addr|clientid)")
RECORDS = {"pull", "query", "view"}


def masked(text: str) -> str:
    """Without addresses, times and where the words of an exception or of a help page begin."""
    text = re.split(r"\s*See \S*(?:docs|rocketmq)", text)[0].strip()
    text = re.sub(r"/?\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS", text)
    text = re.sub(r"0x[0-9a-fA-F]+", "HEX", text)
    return text if len(text) < 200 else text[:200]


def leaves(value, name):
    """{field: value} of JSON. What names a time is there or not, whatever it is."""
    if isinstance(value, dict):
        found = {}
        for key, one in value.items():
            found |= leaves(one, f"{name}.{key}")
        return found or {name: "{}"}
    if isinstance(value, list):
        return {name: sorted(json.dumps(one, sort_keys=True) if not isinstance(one, dict) else ",".join(sorted(one))
                             for one in value)}
    return {name: "TIME" if TIMES.search(name.rsplit(".", 1)[-1]) else value}


def parsed(body: bytes):
    """JSON, also as fastjson writes it: keys that are numbers or objects."""
    text = re.sub(r"([{,])\s*(-?\d+)\s*:", r'\1"\2":', body.decode())
    text = re.sub(r'\{("brokerName":"[^"]*","queueId":\d+,"topic":"[^"]*")\}:', lambda m: json.dumps(m[1]) + ":", text)
    return json.loads(text)


def records(body: bytes):
    found, at = {}, 0
    while at < len(body):
        size = int.from_bytes(body[at:at + 4], "big")
        one = decode_record(body[at:at + size])
        place = f"body.{len(found)}"
        found[place] = (one.topic, one.queue_id, one.queue_offset, one.flag, one.sys_flag, bytes(one.body)[:100],
                        dict(one.properties))
        at += size
    return found


def fields(label, frame):
    found = {"code": frame.code, "flag": frame.flag, "remark": masked(frame.remark), "language": frame.language,
             "version": frame.version, "serialize": frame.serialize}
    for name, value in frame.ext.items():
        found[f"ext.{name}"] = "ID" if name == "msgId" else "TIME" if TIMES.search(name) else \
            "OFFSET" if name == "indexLastUpdatePhyoffset" else value
    body = frame.body
    if not body:
        return found
    if label.split()[0] in RECORDS:
        return found | records(body)
    try:
        return found | leaves(parsed(body), "body")
    except ValueError:
        return found | {"body": f"{len(body)} bytes" if b"=" not in body else "properties"}


# ---- the two brokers

def free_ports(count):
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


@contextmanager
def real(version, directory, *options):
    """The address of a real broker."""
    (port,) = free_ports(1)
    with open(directory / "java.log", "wb") as log:
        process = subprocess.Popen([SCRIPT, "--rocketmq", version, directory / "java", str(port), *options],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        wait_listens(process, directory / "java.log")
        yield f"127.0.0.1:{port}"
        process.communicate(timeout=FETCH_SECONDS)      # its input ends, and so does it
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def ours(version, directory):
    ready = directory / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_store", "serve", str(directory / "ours"), "--profile", "test", "--listen", "127.0.0.1:0",
         "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o", f"compat={'4.9' if version[0] == '4' else '5.x'}",
         "-o", "waitTimeMillsInSendQueue=60000", "-o", "maxMessageSize=4194304"],
        stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert process.stdout.readline()
        yield json.loads(ready.read_text())["listen"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def answers(address):
    with Peer(address) as peer, Peer(address) as client:
        return {label: fields(label, frame) for label, frame in requests(peer, client)}


@pytest.mark.slow           # a JVM with a broker
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_answers_are_those_of_a_real_broker(version, tmp_path):
    options = ["bindAddress=127.0.0.1", "brokerName=broker-a", "enablePropertyFilter=true", "waitTimeMillsInSendQueue=60000"]
    with real(version, tmp_path, *options) as theirs:
        expected = answers(theirs)
    with ours(version, tmp_path) as address:
        found = answers(address)
    assert found.keys() == expected.keys()
    differences = {}
    for label, want in expected.items():
        got = found[label]
        for name in sorted(want.keys() | got.keys()):
            if want.get(name) != got.get(name):
                differences[f"{label}: {name}"] = f"real {want.get(name)!r}, ours {got.get(name)!r}"
    known = DIFFERENCES | (DIFFERENCES_4 if version[0] == "4" else DIFFERENCES_5)
    new = {where: what for where, what in differences.items() if not any(fnmatchcase(where, pattern) for pattern in known)}
    assert new == {}, "\n".join(f"{where}: {what}" for where, what in new.items())
    gone = [pattern for pattern in known if not any(fnmatchcase(where, pattern) for where in differences)]
    assert gone == [], f"listed, and no difference any more: {gone}"
