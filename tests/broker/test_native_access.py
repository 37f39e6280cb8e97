"""What the network thread answers by itself while requests need a signature: the same again that Python has allowed, and
nothing else. The counts of its own answers tell who answered."""
import json
import struct

import pytest

from rmq_store import Broker
from rmq_store.broker import access
from rmq_store.remoting.frame import BINARY
from tests.broker.peer import Peer
from tests.broker.signer import Signer

pytest.importorskip("yaml")

RULES = """
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678a
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [topicB=PUB|SUB, topicC=SUB, topicD=PUB]
    groupPerms: [groupA=DENY]
  - accessKey: another1
    secretKey: 12345678a
    defaultTopicPerm: DENY
"""
SEND = {"a": "P", "b": "topicB", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "KEYS\x01schön\x02", "j": 0}
READ = {"consumerGroup": "G", "topic": "topicB", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
LONG = {"producerGroup": "P", "topic": "topicB", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
REQUESTS = {310: SEND, 10: LONG, 11: READ, 361: READ, 15: READ}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    path = tmp_path_factory.mktemp("acl")
    (path / "plain_acl.yml").write_text(RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "LOOK_S", 3600.0)         # the file does not change
        with Broker.open(path / "s", profile="test", aclEnable=True, aclFile=str(path / "plain_acl.yml"),
                         waitTimeMillsInSendQueue=60_000) as broker:
            with Signer(broker.address, "RocketMQ", "12345678a") as signer:
                assert signer.put("topicB").code == signer.put("topicD").code == 0
                signer.beat(consumers={"G": {"topicB": "*"}})
            yield broker


def natively(broker, signer, code, fields, allowed=True):
    """How many of this one request the network thread has answered."""
    before = broker._front.requests()[code]
    answer = signer.ask(code, "é".encode() if code in (10, 310) else b"", **fields)
    signer.ask(9999)            # the thread counts a pull after it has sent the answer, and before it reads what comes next
    refused = "AclException" in (answer.remark or "")
    assert refused != allowed, answer.remark
    return broker._front.requests()[code] - before


@pytest.mark.parametrize("serialize", [0, BINARY])
@pytest.mark.parametrize("code", REQUESTS)
def test_the_same_again(guarded, code, serialize):
    fields = REQUESTS[code]
    topic = "b" if code == 310 else "topic"
    with Signer(guarded.address, "RocketMQ", "12345678a", serialize) as user:
        natively(guarded, user, code, fields)
        assert natively(guarded, user, code, fields) == 1
        for wrong in ({"Signature": "A" * 27 + "="}, {"Signature": ""}, {"AccessKey": "RocketMQ8"}, {topic: "topicA"},
                      {"AccessKey": "another1"}):
            assert natively(guarded, user, code, fields | wrong, allowed=False) == 0
        assert natively(guarded, user, code, fields | {"_UNIQUE_KEY_QUERY": "true"}) == 0       # may be signed in two ways
        assert natively(guarded, user, code, fields | {f"x{n}": n for n in range(40)}) == 0     # as many as no client sends
        user.unsigned = {"z": "1"}
        assert natively(guarded, user, code, fields, allowed=False) == 0
    with Signer(guarded.address, "another1", "12345678a", serialize) as other:
        assert natively(guarded, other, code, fields, allowed=False) == 0
    with Signer(guarded.address, "RocketMQ", "12345678b", serialize) as thief:
        assert natively(guarded, thief, code, fields, allowed=False) == 0


def test_a_permission_is_for_one_thing(guarded):
    with Signer(guarded.address, "RocketMQ", "12345678a") as user:
        natively(guarded, user, 310, SEND | {"b": "topicD"})
        assert natively(guarded, user, 310, SEND | {"b": "topicD"}) == 1
        assert natively(guarded, user, 11, READ | {"topic": "topicD"}, allowed=False) == 0
        assert natively(guarded, user, 11, READ | {"consumerGroup": "groupA"}, allowed=False) == 0
        natively(guarded, user, 11, READ)
        assert natively(guarded, user, 310, SEND | {"b": "topicC"}, allowed=False) == 0
        assert natively(guarded, user, 310, SEND | {"b": "topicBG"}, allowed=False) == 0


def test_questions_for_offsets_need_a_signature_only(guarded):
    with Signer(guarded.address, "RocketMQ", "12345678a") as user:
        assert user.ask(15, **READ).code == 0
        assert natively(guarded, user, 14, READ) == 1
        assert natively(guarded, user, 14, READ | {"Signature": "A" * 27 + "="}, allowed=False) == 0


def test_a_pull_commits_the_first_offset_of_its_group(guarded):
    """What it commits has its signature, and none of its own."""
    with Signer(guarded.address, "RocketMQ", "12345678a") as user:
        user.beat(consumers={"first": {"topicB": "*"}})
        read = READ | {"consumerGroup": "first", "sysFlag": 5}
        assert natively(guarded, user, 11, read | {"sysFlag": 4}) == 0
        assert natively(guarded, user, 11, read | {"sysFlag": 4}) == 1
        user.ask(11, **read | {"commitOffset": 1})
        assert guarded.store.offsets.query("first", "topicB", 0) == 1
        assert natively(guarded, user, 11, read | {"commitOffset": 2}) == 1
        assert guarded.store.offsets.query("first", "topicB", 0) == 2
        before = guarded._front.requests()[11]
        for _ in range(100):
            user.send(9999)             # which Python has not served yet: a commit must not overtake it, but a pull may
        assert user.ask(11, **read | {"commitOffset": 2}).code == 0
        user.ask(9999)
        assert guarded._front.requests()[11] == before + 1


def test_two_fields_of_one_name_are_for_python(guarded):
    """Of which JSON takes the last: the thread does not choose."""
    signed = {}

    class Kept(Peer):
        def send(self, code, body=b"", frame_flag=0, **ext):
            signed.update(ext)
            return super().send(code, body, frame_flag, **ext)

    class Both(Signer, Kept):
        pass

    with Both(guarded.address, "RocketMQ", "12345678a") as user:
        natively(guarded, user, 310, SEND)
        user.ask(310, b"x", **SEND)
        ext = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in [("b", "topicA"), *signed.items()])
        header = f'{{"code":310,"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":77,"version":409}}'.encode()
        before = guarded._front.requests()[310]
        user.sock.sendall(struct.pack(">ii", 4 + len(header) + 1, len(header)) + header + b"x")
        assert user.answer(77).code == 0 and guarded._front.requests()[310] == before
