"""What an account needs for each request: of all that a message reaches, and of the groups of others."""
import pathlib
import struct
import time

import pytest

from rmq_store import Broker
from rmq_store.broker import resources
from rmq_store.broker.acl_file import Account
from rmq_store.broker.codes import NO_SEND, PUB, SUB
from rmq_store.codec.batch import encode_batch
from rmq_store.codec.message_id import create_message_id
from tests.broker.peer import Peer
from tests.broker.signer import Signer
from tests.soon import until

pytest.importorskip("yaml")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "broker.md"
RULES = """
accounts:
  - accessKey: administrator
    secretKey: "c3d9-77aa"
    admin: true
  - accessKey: orders-service
    secretKey: "8f1b-41c2"
    defaultTopicPerm: PUB
    defaultGroupPerm: DENY
    topicPerms:
      - Secret=DENY
      - "%LMQ%secret=DENY"
  - accessKey: nobody-service
    secretKey: "8f1b-41c3"
"""


@pytest.fixture(params=["5.x", "4.9"])
def guarded(tmp_path, request):
    (tmp_path / "acl.yml").write_text(RULES)
    options = {"enable_lmq": True, "enable_multi_dispatch": True}
    with Broker.open(tmp_path / "s", profile="test", aclEnable=True, aclFile=str(tmp_path / "acl.yml"), compat=request.param,
                     waitTimeMillsInSendQueue=60_000, transactionTimeOut=100, transactionCheckInterval=100,
                     **options) as broker:
        yield broker


@pytest.fixture
def admin(guarded):
    with Signer(guarded.address, "administrator", "c3d9-77aa") as signer:
        for topic in ("Orders", "Secret"):
            signer.ask(17, topic=topic, readQueueNums=1, writeQueueNums=1, perm=6)
        yield signer


@pytest.fixture
def orders(guarded):
    with Signer(guarded.address, "orders-service", "8f1b-41c2") as signer:
        yield signer


@pytest.fixture
def nobody(guarded):
    with Signer(guarded.address, "nobody-service", "8f1b-41c3") as signer:
        yield signer


def refused(answer, resource):
    assert (answer.code, answer.remark) == (1, f"{resources.EXCEPTION}No default permission for {resource}")


@pytest.mark.parametrize("how", ["send", "long names", "half message", "timer", "batch", "batch of a message", "reply"])
def test_a_property_leads_nowhere_without_a_permission(guarded, admin, orders, how):
    def put(properties):
        if how == "long names":
            fields = {"producerGroup": "P", "topic": "Orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                      "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
            return orders.ask(10, b"x", **fields, properties="".join(f"{k}\x01{v}\x02" for k, v in properties.items()))
        if how == "batch of a message":
            return orders.put("Orders", encode_batch([b"x", {"body": b"y", "properties": properties}]), code=320, m="true")
        if how == "batch":
            return orders.put("Orders", encode_batch([b"x"]), code=320, m="true", properties=properties)
        more = {"half message": {"TRAN_MSG": "true", "PGROUP": "P"}, "timer": {"TIMER_DELAY_SEC": "1"}}.get(how, {})
        if how == "reply":
            return orders.put("DefaultCluster_REPLY_TOPIC", code=325, properties=properties | {"REPLY_TO_CLIENT": "nobody"})
        return orders.put("Orders", properties=properties | more)

    assert orders.put("Orders").code == 0           # the network thread knows that it may
    before = guarded.store.max_log_offset
    refused(put({"INNER_MULTI_DISPATCH": "%LMQ%secret"}), "topic:%LMQ%secret")
    refused(put({"INNER_MULTI_DISPATCH": "%LMQ%mine,%LMQ%secret"}), "topic:%LMQ%secret")
    refused(put({"TIMER_DEL_UNIQKEY": "Secret+key"}), "topic:Secret")
    assert guarded.store.max_log_offset == before
    assert resources.EXCEPTION not in put({"INNER_MULTI_DISPATCH": "%LMQ%mine", "KEYS": "k"}).remark


def test_nobody_sends_into_the_topic_of_the_timer(broker):
    """Without accounts, too."""
    properties = {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "REAL_QID": "0"}
    with Peer(broker.address) as peer:
        for topic in (*NO_SEND, "rmq_sys_wheel_timer"):
            for code in (310, 325):
                assert peer.put(topic, code=code, properties=properties).code == 16, topic
            assert peer.put(topic, encode_batch([{"body": b"x", "properties": properties}]), code=320, m="true").code == 16
    assert broker.store.max_log_offset == 0


def half(admin, guarded):
    """(log offset, half queue offset) of a half message that the administrator made for Secret in the group bank."""
    answer = admin.put("Secret", b"account 4711", a="bank", g=int(time.time() * 1000),
                       properties={"TRAN_MSG": "true", "PGROUP": "bank", "UNIQ_KEY": "u"})
    assert answer.code == 0
    return int(answer.ext["msgId"][-16:], 16), int(answer.ext["queueOffset"])


def end(signer, place, decision):
    return signer.ask(37, producerGroup="bank", tranStateTableOffset=place[1], commitLogOffset=place[0],
                      commitOrRollback=decision, fromTransactionCheck="true", msgId="u", transactionId="u")


def test_half_messages_go_to_producers_that_may_send(guarded, admin, nobody, orders, caplog):
    for stranger in (nobody, orders):
        assert stranger.beat("x", producers=["bank"]).code == 0
    place = half(admin, guarded)
    for stranger in (nobody, orders):
        refused(end(stranger, place, 12), "topic:Secret")
        refused(stranger.ask(33, offset=place[0]), "topic:Secret")
    assert admin.ask(33, offset=place[0]).code == 0
    until(lambda: "cannot be checked" in caplog.text)           # a round, in which nobody may be asked
    assert admin.beat("a", producers=["bank"]).code == 0
    pushed = admin.push()
    assert (pushed.code, b"account 4711" in pushed.body) == (39, True)
    assert end(admin, place, 8).code == 0
    for stranger in (nobody, orders):
        assert stranger.ask(9999).code == 3 and not stranger.pushed


def test_a_group_of_others(guarded, admin, nobody):
    assert admin.beat("c1", consumers={"billing": {"Secret": "*"}}).code == 0
    assert admin.put("Secret", b"account 4711").code == 0
    id = create_message_id(guarded.store.options.store_host, 0)
    locks = {"clientId": "x", "consumerGroup": "billing", "mqSet": [{"topic": "Secret", "queueId": 0, "brokerName": "b"}]}
    for answer in (nobody.ask(41, locks), nobody.ask(42, locks), nobody.ask(307, consumerGroup="billing", clientId="c1"),
                   nobody.ask(309, consumerGroup="billing", clientId="c1", msgId=id),
                   nobody.ask(36, group="billing", offset=0, delayLevel=0, originTopic="Secret")):
        refused(answer, "group:billing")
    refused(nobody.ask(33, offset=0), "topic:Secret")
    assert admin.ask(41, locks).code == 0
    while admin.pushed:
        assert admin.pushed.pop().code == 40


def test_who_may_use_a_group_reads_no_topic_by_it(tmp_path):
    """309 and 36 name a message by its offset in the log, which may be of any topic."""
    (tmp_path / "acl.yml").write_text(RULES + "    defaultGroupPerm: SUB\n")
    with Broker.open(tmp_path / "s", profile="test", aclEnable=True, aclFile=str(tmp_path / "acl.yml")) as broker:
        broker.store.put("Secret", b"account 4711", queue_id=0)
        with Signer(broker.address, "nobody-service", "8f1b-41c3") as nobody:
            assert nobody.beat("c1", consumers={"billing": {}}).code == 0
            refused(nobody.ask(36, group="billing", offset=0, delayLevel=0, originTopic="x"), "topic:Secret")
            id = create_message_id(broker.store.options.store_host, 0)
            refused(nobody.ask(309, consumerGroup="billing", clientId="c1", msgId=id), "topic:Secret")


def test_a_waiting_message_is_of_its_real_topic():
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        assert resources.record_topic(topic, {"REAL_TOPIC": "Secret"}) == "Secret"
    assert resources.record_topic("Secret", {"REAL_TOPIC": "Orders"}) == "Secret"       # a property of its sender


@pytest.mark.parametrize("compat", ["5.x", "4.9"])
def test_a_code_without_a_row_does_not_start(tmp_path, monkeypatch, compat):
    with Broker.open(tmp_path / "s", profile="test", compat=compat) as broker:
        codes = set(broker._processors._table)
    assert codes <= resources.ROWS.keys()
    if compat == "5.x":
        assert codes == resources.ROWS.keys()
    for row in resources.ROWS.values():
        assert row.needs and (row.of is not None or row.admin or row.needs.startswith(("nothing: ", "SUB of", "PUB of")))
    monkeypatch.delitem(resources.ROWS, 34)
    with pytest.raises(KeyError, match="request code 34 has no row"):
        Broker.open(tmp_path / "s2", profile="test", compat=compat)


def test_the_page_has_the_rows():
    assert f"<!-- Made by `python -m rmq_store.broker.resources`. -->\n{resources.table()}\n<!-- end -->" in PAGE.read_text()


def test_a_batch_that_is_none_needs_its_topic_only():
    from rmq_store.remoting.frame import Frame

    body = struct.pack(">i", 1 << 30) + b"INNER_MULTI_DISPATCH"
    assert list(resources.ROWS[320].of(Frame(320, 1, {"b": "Orders"}, body))) == [("Orders", resources.PUB)]


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer",
                                   "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_topics_in_which_messages_wait_are_read_by_administrators(topic):
    """An account that may read what no rule names would read there what a rule forbids."""
    def account(admin):
        return Account("key", b"secret", admin, lambda address: False, PUB | SUB, PUB | SUB, {topic: PUB | SUB})
    assert not account(False).may(topic, SUB) and account(True).may(topic, SUB)
    assert account(False).may("T", SUB)
