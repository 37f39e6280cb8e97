"""Light queues over the wire, as a broker of RocketMQ serves them: queue 0 of the topic %LMQ%name, without an entry of topics.
"""
import pytest

from rmq_store import Broker
from rmq_store.broker import offsets, pulling
from rmq_store.services.consumer import _offsets
from tests.broker.peer import Peer
from tests.broker.signer import Signer
from tests.broker.test_consuming import bodies

LIGHT = {"enableLmq": True, "enableMultiDispatch": True, "waitTimeMillsInSendQueue": 60_000}
LAMP = "%LMQ%lamp"


@pytest.fixture(params=["5.x", "4.9"])
def broker(tmp_path, request):
    with Broker.open(tmp_path / "s", profile="test", compat=request.param, **LIGHT) as broker:
        yield broker


@pytest.fixture
def peer(broker):
    with Peer(broker.address) as peer:
        yield peer


def put(peer, body, *names, **properties):
    assert peer.put("Devices", body, properties={"INNER_MULTI_DISPATCH": ",".join(names)} | properties).code == 0


def test_a_pull_finds_messages_and_continues(broker, peer):
    peer.put("Devices", b"other")
    for i in range(3):
        put(peer, b"%d" % i, LAMP, "%LMQ%all")
    broker.store.wait_dispatched(10)
    peer.beat(consumers={"G": {LAMP: "*"}})
    answer = peer.pull(topic=LAMP)
    assert (answer.code, bodies(answer), answer.ext["nextBeginOffset"]) == (0, [b"0", b"1", b"2"], "3")
    assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "3")
    assert bodies(peer.pull(topic=LAMP, offset=2, bits=4, subscription="*")) == [b"2"]      # no heartbeat is needed
    lite = peer.ask(361, consumerGroup="G", topic=LAMP, queueId=0, queueOffset=1, maxMsgNums=1, sysFlag=20, commitOffset=0,
                    suspendTimeoutMillis=0, subVersion=0, subscription="*")
    assert bodies(lite) == [b"1"]
    assert peer.pull(topic=LAMP, queue=1).code == (29 if broker._core.modern else 1)
    assert peer.pull(topic=LAMP, offset=99).code == 21
    assert LAMP not in broker.store.topic_table.names()


def test_a_pull_waits_for_a_light_queue_that_is_not_there_yet(broker, peer):
    numbers = [peer.ask_pull(topic=LAMP, bits=6, subscription="*", suspend=60_000),
               peer.ask_pull(topic=LAMP, bits=6, subscription="on || off", suspend=60_000)]
    with Peer(broker.address) as other:
        put(other, b"tagged", LAMP, TAGS="off")
        assert [bodies(peer.answer(number)) for number in numbers] == [[b"tagged"]] * 2
        number = peer.ask_pull(topic=LAMP, offset=1, bits=6, subscription="on || off", suspend=60_000)
        put(other, b"does not match", LAMP, "%LMQ%x", TAGS="dim")
        put(other, b"matches", "%LMQ%x", LAMP, TAGS="on")
        assert bodies(peer.answer(number)) == [b"matches"]
    assert peer.pull(topic=LAMP, offset=3, bits=6, subscription="*", suspend=20).code == 19
    assert peer.pull(topic="%LMQ%none", bits=6, subscription="*", suspend=20).code == 19


def test_offsets_of_groups_and_queues(broker, peer):
    for i in range(4):
        put(peer, b"%d" % i, LAMP)
    broker.store.wait_dispatched(10)
    ask = {"topic": LAMP, "queueId": 0}
    assert peer.ask(30, **ask).ext == {"offset": "4"} and peer.ask(31, **ask).ext == {"offset": "0"}
    first = broker.store.get(LAMP, 0, 0)[0].store_timestamp
    assert peer.ask(29, timestamp=0, **ask).ext == {"offset": "0"} and peer.ask(32, **ask).ext == {"timestamp": str(first)}
    for group in ("G", "%LMQ%g"):
        assert peer.ask(15, consumerGroup=group, commitOffset=3, **ask).code == 0
        assert peer.ask(14, consumerGroup=group, **ask).ext == {"offset": "3"}
        stats = peer.ask(208, consumerGroup=group).body.decode()
        assert '"brokerOffset":4,"consumerOffset":3' in stats and LAMP in stats
        assert peer.ask(208, consumerGroup=group, topic=LAMP).body.decode() == stats
    assert peer.ask(15, consumerGroup="G", topic=LAMP, queueId=1, commitOffset=3).code == 1
    assert '"maxOffset":4' in peer.ask(202, topic=LAMP).body.decode()
    peer.beat(consumers={"G": {LAMP: "*"}})
    assert peer.ask(222, topic=LAMP, group="G", timestamp=0, isForce="true").code == 0
    assert peer.ask(14, consumerGroup="G", **ask).ext == {"offset": "0"}
    peer.pull(topic=LAMP, offset=1, bits=5, subscription="*", commitOffset=2)
    assert broker.store.offsets.query("G", LAMP, 0) == 2
    assert "%LMQ%g" not in broker.store.group_table.names()


def test_a_group_of_light_queues_needs_no_entry(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", autoCreateSubscriptionGroup=False, **LIGHT) as broker, \
            Peer(broker.address) as peer:
        put(peer, b"1", LAMP)
        broker.store.wait_dispatched(10)
        assert bodies(peer.pull("%LMQ%g", LAMP, bits=4, subscription="*")) == [b"1"]
        assert peer.pull("G", LAMP, bits=4, subscription="*").code == 26


def test_without_the_option_it_is_a_topic_that_is_not_there(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        assert peer.pull(topic=LAMP, bits=4, subscription="*").code == 17
        assert peer.ask(15, consumerGroup="G", topic=LAMP, queueId=0, commitOffset=3).code == 17


def test_clients_cannot_make_light_queues_without_a_bound(broker, peer, monkeypatch):
    monkeypatch.setattr(pulling, "AWAITED_MAX", 3)
    put(peer, b"there", LAMP)
    broker.store.wait_dispatched(10)
    for i in range(3):
        assert peer.pull(topic=f"%LMQ%{i}", bits=6, subscription="*", suspend=1).code == 19
    answer = peer.pull(topic="%LMQ%3", bits=6, subscription="*", suspend=1)
    assert answer.code == 2 and "wait for 3 such queues" in answer.remark
    assert peer.pull(topic="%LMQ%2", bits=6, subscription="*", suspend=1).code == 19
    assert peer.pull(topic=LAMP, offset=1, bits=6, subscription="*", suspend=1).code == 19
    assert peer.pull(topic="%LMQ%" + "x" * 251, bits=4, subscription="*").code == 17
    assert peer.pull(topic="%LMQ%a b", bits=4, subscription="*").code == 17


def test_a_light_queue_with_a_message_is_not_one_that_is_waited_for(broker, peer, monkeypatch):
    monkeypatch.setattr(pulling, "AWAITED_MAX", 2)
    monkeypatch.setattr(pulling, "AWAITED_LOOK_S", 0.0)
    for i in range(20):
        for name in (f"%LMQ%{i}", f"%LMQ%{i}x"):
            assert peer.pull(topic=name, bits=6, subscription="*", suspend=1).code == 19
        assert peer.pull(topic=f"%LMQ%{i}y", bits=6, subscription="*", suspend=1).code == 2
        put(peer, b"there", f"%LMQ%{i}", f"%LMQ%{i}x")
        broker.store.wait_dispatched(10)


def test_pulls_of_groups_that_clients_make_up_leave_no_counts(broker, peer):
    put(peer, b"1", LAMP)
    broker.store.wait_dispatched(10)
    for i in range(30):
        assert bodies(peer.pull(f"%LMQ%g{i}", LAMP, bits=4, subscription="*")) == [b"1"]
    assert bodies(peer.pull("G", LAMP, bits=4, subscription="*")) == [b"1"]
    assert [(counts.group, counts.topic) for counts in broker.store._consuming.counts()] == [("G", LAMP)]


@pytest.mark.parametrize("compat", ["5.x", "4.9"])
def test_offsets_of_light_queues_leave_room_for_others(tmp_path, monkeypatch, compat):
    """Any text is a light queue, and a group of them: without a bound of their own they take all places."""
    monkeypatch.setattr(offsets, "OFFSETS_MAX", 10)
    monkeypatch.setattr(_offsets, "ROWS_MAX", 2)            # what native threads know stays when a group is deleted
    options = {"profile": "test", "compat": compat, **LIGHT}

    def commit(peer, group, topic, queue=0):
        return peer.ask(15, consumerGroup=group, topic=topic, queueId=queue, commitOffset=1)

    with Broker.open(tmp_path / "s", **options) as broker, Peer(broker.address) as peer:
        peer.put("T", b"x")
        assert [commit(peer, f"%LMQ%g{i}", LAMP).code for i in range(3)] == [0] * 3
        assert [commit(peer, "G", f"%LMQ%{i}").code for i in range(2)] == [0] * 2
    with Broker.open(tmp_path / "s", **options) as broker, Peer(broker.address) as peer:
        for group, topic in (("%LMQ%new", LAMP), ("G", LAMP), ("%LMQ%g1", "T")):
            answer = commit(peer, group, topic)
            assert answer.code == 1 and "limit is 5 offsets of light queues and their groups; delete groups" in answer.remark
            assert peer.pull(group, topic, bits=5, subscription="*", commitOffset=1).code in (0, 19)   # the pull is served
        assert [commit(peer, "G", "T", queue).code for queue in range(4)] == [0] * 4
        assert commit(peer, "%LMQ%g1", LAMP).code == 0      # it is there
        assert peer.ask(207, groupName="%LMQ%g2", cleanOffset="true").code == 0
        assert [commit(peer, f"%LMQ%{name}", LAMP).code for name in ("new", "newer")] == [0, 1]
        assert sum(map(len, broker.store.offsets.table().values())) == 9


def test_an_account_needs_the_light_queue(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "acl.yml").write_text("""
accounts:
  - accessKey: producer
    secretKey: 12345678a
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
  - accessKey: consumer
    secretKey: 12345678a
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - "%LMQ%lamp=SUB"
""")
    with Broker.open(tmp_path / "s", profile="test", aclEnable=True, aclFile=str(tmp_path / "acl.yml"), **LIGHT) as broker:
        with Signer(broker.address, "producer", "12345678a") as peer:
            put(peer, b"1", LAMP, "%LMQ%door")
        broker.store.wait_dispatched(10)
        with Signer(broker.address, "consumer", "12345678a") as peer:
            for code in (11, 361):
                ask = {"consumerGroup": "G", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
                       "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
                assert bodies(peer.ask(code, topic=LAMP, **ask)) == [b"1"]
                for other in ("%LMQ%door", "Devices", "%LMQ%none"):
                    refused = peer.ask(code, topic=other, **ask)
                    assert refused.code == 1 and f"No default permission for topic:{other}" in refused.remark
            assert peer.ask(15, consumerGroup="G", topic=LAMP, queueId=0, commitOffset=1).code == 0
            assert peer.ask(15, consumerGroup="G", topic="%LMQ%door", queueId=0, commitOffset=1).code == 1
