"""aclEnable: who may send which request. In tests/interop, the same is asked of a real broker, and real clients sign."""
import os
import urllib.request
from pathlib import Path

import pytest

from rmq_store import Broker, errors
from rmq_store.broker import access
from rmq_store.broker.acl_file import PUB, SUB, read_rules
from rmq_store.codec.batch import encode_batch
from rmq_store.remoting.frame import BINARY
from tests.broker.peer import Peer
from tests.broker.signer import Signer
from tests.soon import until

yaml = pytest.importorskip("yaml")

RULES = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678a
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB
  - accessKey: rocketmq2
    secretKey: 87654321b
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""
WORD = "org.apache.rocketmq.acl.common.AclException: "


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(RULES)
    return path


def guard(path, rules):
    return Broker.open(path / "s", profile="test", aclEnable=True, aclFile=str(rules), waitTimeMillsInSendQueue=60_000)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """One broker for all tests that do not change the rules."""
    path = tmp_path_factory.mktemp("acl")
    (path / "plain_acl.yml").write_text(RULES)
    with guard(path, path / "plain_acl.yml") as broker:
        yield broker


@pytest.fixture
def user(guarded):
    with Signer(guarded.address, "RocketMQ", "12345678a") as signer:
        yield signer


@pytest.fixture
def admin(guarded):
    with Signer(guarded.address, "rocketmq2", "87654321b") as signer:
        yield signer


def refused(answer, text):
    assert (answer.code, answer.remark) == (1, WORD + text)


@pytest.mark.parametrize("serialize", [0, BINARY])
def test_signatures(guarded, serialize):
    def put(*who, **more):
        with Signer(guarded.address, *who, serialize) as signer:
            return signer.put("topicB", "grün €".encode(), properties={"KEYS": "schön"}, **more)

    before = guarded.store.stats()["puts"]
    assert put("RocketMQ", "12345678a").code == 0
    refused(put("RocketMQ", "12345678b"), "Check signature failed for accessKey=RocketMQ")
    refused(put("RocketMQ", "12345678a", Signature=""), "Check signature failed for accessKey=RocketMQ")
    refused(put("RocketMQ", "12345678a", Signature="\u20ac"), "Check signature failed for accessKey=RocketMQ")
    refused(put("Nobody7", "12345678a"), "No acl config for Nobody7")
    with Peer(guarded.address, serialize) as peer:
        refused(peer.put("topicB"), "No accessKey is configured")
        refused(peer.pull(topic="topicB"), "No accessKey is configured")
        refused(peer.ask(9999), "No accessKey is configured")
    assert guarded.store.stats()["puts"] == before + 1


def test_a_signature_is_of_the_fields_and_the_body(guarded, user):
    class Changed(Signer):
        def send(self, code, body=b"", frame_flag=0, **ext):
            return Peer.send(self, code, body, frame_flag, **ext)

    heard = {}
    send = Peer.send
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "send", lambda self, code, body=b"", flag=0, **ext: heard.update(ext=ext, body=body) or
                      send(self, code, body, flag, **ext))
        assert user.put("topicB", b"body").code == 0
    with Changed(guarded.address, "", "") as other:
        assert other.ask(310, heard["body"], **heard["ext"]).code == 0          # as in RocketMQ: nothing tells a repetition
        assert other.ask(310, b"bodY", **heard["ext"]).code == 1
        assert other.ask(310, heard["body"], **heard["ext"] | {"e": "1"}).code == 1
        assert other.ask(310, heard["body"], **heard["ext"] | {"z": "1"}).code == 1


def test_queries_are_signed_in_two_ways(user):
    """With _UNIQUE_KEY_QUERY as clients of 4.9.8 do, and without, as those before and a real broker do."""
    query = {"topic": "topicB", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9}
    user.put("topicB")
    assert user.ask(12, _UNIQUE_KEY_QUERY="true", **query).code == 22
    user.unsigned = {"_UNIQUE_KEY_QUERY": "true"}
    assert user.ask(12, **query).code == 22
    user.unsigned = {"other": "true"}
    refused(user.ask(12, **query), "Check signature failed for accessKey=RocketMQ")


def test_sends(user):
    assert user.put("topicB").code == 0
    long_names = {"producerGroup": "P", "topic": "topicB", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
                  "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
    assert user.ask(10, b"x", **long_names).code == 0
    refused(user.ask(10, b"x", **long_names | {"topic": "topicA"}), "No default permission for topic:topicA")
    for topic in ("topicA", "topicC", "other"):
        refused(user.put(topic), f"No default permission for topic:{topic}")
        refused(user.put(topic, code=320, m="true"), f"No default permission for topic:{topic}")
    refused(user.put("%RETRY%groupA"), "No default permission for group:groupA")
    assert user.put("%RETRY%groupC").code != 1
    assert WORD not in user.put("RMQ_SYS_TRACE_TOPIC").remark       # message traces need no permission


@pytest.mark.parametrize("code", [11, 361, 15])
def test_reads(user, code):
    def read(topic, group):
        fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
                  "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
        return user.ask(code, **fields)

    user.put("topicB")
    assert WORD not in read("topicB", "groupB").remark
    assert WORD not in read("topicC", "anyGroup").remark
    assert WORD not in read("%RETRY%groupC", "groupC").remark
    refused(read("topicA", "groupB"), "No default permission for topic:topicA")
    refused(read("topicB", "groupA"), "No default permission for group:groupA")
    refused(read("%RETRY%groupA", "groupB"), "No default permission for group:groupA")


def test_heartbeats_groups_and_what_fails(guarded, user):
    assert user.beat(producers=["any"], consumers={"groupB": {"topicB": "*", "%RETRY%groupB": "*"}}).code == 0
    refused(user.beat(consumers={"groupA": {"topicB": "*"}}), "No default permission for group:groupA")
    refused(user.beat(consumers={"groupB": {"other": "*"}}), "No default permission for topic:other")
    assert user.ask(38, consumerGroup="groupB").code == 0
    refused(user.ask(38, consumerGroup="groupA"), "No default permission for group:groupA")
    refused(user.ask(35, clientID="c1", consumerGroup="groupA"), "No default permission for group:groupA")
    assert user.ask(35, clientID="c1", producerGroup="any").code == 0
    refused(user.ask(36, group="groupA", originTopic="topicB", offset=0, delayLevel=0),
            "No default permission for group:groupA")
    assert WORD not in user.ask(36, group="groupB", originTopic="topicC", offset=0, delayLevel=0).remark
    refused(user.ask(12, topic="topicA", key="k", maxNum=1, beginTimestamp=0, endTimestamp=9), "No default permission for "
            "topic:topicA")
    assert user.ask(34, b"no JSON").code == 1


def test_administration(guarded, user, admin):
    for code in (17, 25, 200, 207, 215):
        refused(user.ask(code, topic="T"), f"Need admin permission for request code={code}, but accessKey=RocketMQ is not")
    assert admin.ask(17, topic="T", readQueueNums=1, writeQueueNums=1, perm=6).code == 0
    assert admin.put("topicA").code == 0            # an administrator without permissions of his own has them all
    config = admin.ask(26).body.decode()
    assert "aclEnable=true" in config and "keyPassword" not in config and "87654321b" not in config
    assert admin.ask(25, b"aclEnable=false").code == 1
    if guarded.fast_address is not None:
        with Peer(guarded.fast_address) as peer:
            refused(peer.put("topicB"), "No accessKey is configured")


def test_answers_of_clients_need_no_signature(guarded, user):
    from rmq_store.remoting.frame import RESPONSE

    with Peer(guarded.address) as peer:
        peer.send(310, b"", RESPONSE)
        refused(peer.ask(30, topic="T", queueId=0), "No accessKey is configured")


def test_the_file_is_read_again(tmp_path, rules, caplog, monkeypatch):
    monkeypatch.setattr(access, "LOOK_S", 3600.0)
    monkeypatch.setattr(access, "STILL_S", 3600.0)
    with guard(tmp_path, rules) as broker, Signer(broker.address, "RocketMQ", "12345678a") as user:
        change_the_file(broker, rules, user, caplog)


def change_the_file(broker, rules, user, caplog):
    def write(text):
        rules.write_text(text)
        broker._core.access.look()
        broker._core.access.look()

    write(RULES.replace("topicC=SUB", "topicC=PUB"))
    assert user.put("topicC").code == 0
    write("accounts: [")
    assert user.put("topicC").code == 0
    os.unlink(rules)
    broker._core.access.look()
    assert user.put("topicC").code == 0
    assert sum("rules stay as they were" in r.message for r in caplog.records) == 2
    write(RULES)
    refused(user.put("topicC"), "No default permission for topic:topicC")
    assert user.put("topicB").code == 0
    write(RULES.replace("12345678a", "changed7"))
    refused(user.put("topicB"), "Check signature failed for accessKey=RocketMQ")
    write("globalWhiteRemoteAddresses: ['127.0.0.1']\n")
    with Peer(broker.address) as peer:
        native = broker._front.requests()[310]
        for _ in range(3):
            assert peer.put("anything").code == 0
        assert broker._front.requests()[310] == native + 2      # the first one made the topic, and told of the address
        write(RULES)
        refused(peer.put("anything"), "No accessKey is configured")


def test_a_file_that_is_being_written_does_not_count(tmp_path, rules, monkeypatch):
    """Its first half is a file, too: without the line that forbids something."""
    monkeypatch.setattr(access, "LOOK_S", 3600.0)
    monkeypatch.setattr(access, "STILL_S", 3600.0)
    whole = "accounts: [{accessKey: RocketMQ, secretKey: 12345678a, defaultTopicPerm: PUB}]\n"
    rules.write_text(whole)
    with guard(tmp_path, rules) as broker, Signer(broker.address, "RocketMQ", "12345678a") as user:
        half = RULES.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB").partition("    topicPerms:")[0]
        look = broker._core.access.look
        assert user.put("topicA").code == 0
        for text in (half, RULES):
            rules.write_text(text)
            look()
            assert set(broker._core.access._rules.accounts) == {"RocketMQ"}
            assert broker._core.access._rules.accounts["RocketMQ"].perms is None
        assert user.put("topicA").code == 0
        look()
        refused(user.put("topicA"), "No default permission for topic:topicA")


def test_requests_ask_for_a_look_at_the_file(tmp_path, rules, monkeypatch):
    """No other request than those that the network thread answers: it asks, and Python looks."""
    monkeypatch.setattr(access, "LOOK_S", 0.0)
    with guard(tmp_path, rules) as broker, Signer(broker.address, "RocketMQ", "12345678a") as user:
        assert user.put("topicB").code == user.put("topicB").code == 0
        rules.write_text(RULES.replace("topicB=PUB|SUB", "topicB=SUB"))
        until(lambda: user.put("topicB").code == 1)


def test_the_page_shows_no_messages(tmp_path, rules):
    with Broker.open(tmp_path / "s", profile="test", aclEnable=True, aclFile=str(rules),
                     metrics_listen="127.0.0.1:0") as broker:
        with Signer(broker.address, "rocketmq2", "87654321b") as signer:
            assert signer.put("T", b"a secret body").code == 0
        broker.store.wait_dispatched(10)
        with urllib.request.urlopen(f"http://{broker.metrics_address}/", timeout=30) as answer:
            page = answer.read().decode()
    assert "T</summary>" in page and "secret" not in page


ONE = "accounts: [{accessKey: abcdefg, secretKey: hijklmn, %s}]"


@pytest.mark.parametrize(("text", "said"), [
    ("", "is empty"), ("- a", "no table"), ("accounts: {}", "accounts is no list"), ("accounts: [a]", "no table"),
    ("accounts: [{accessKey: short, secretKey: 1234567a}]", "accessKey of account 'short'"),
    ("accounts: [{accessKey: 12345678, secretKey: 1234567a}]", "quotes"),
    ("accounts: [{accessKey: abcdefg, secretKey: 1234567}]", "secretKey of account 'abcdefg'"),
    (ONE % "admin: 'true'", "admin"), (ONE % "topicPerms: [T]", "topicPerms"), (ONE % "resourcePerms: []", "resourcePerms"),
    (ONE % "whiteRemoteAddress: 1.2.3", "3 parts"), (ONE % "whiteRemoteAddress: 1.2.3.256", "255"),
    (ONE % "whiteRemoteAddress: 1.2.3.9-5", "255"), ("globalWhiteRemoteAddresses: [a]", "parts"),
    ('accounts: [{accessKey: "abcdef\\ud800", secretKey: hijklmn}]', "no YAML"),
    ("a: [", "no YAML"), ("accounts: [{accessKey: abcdefg, secretKey: hijklmn}, {accessKey: abcdefg, secretKey: hijklmn}]",
                          "twice")])
def test_files_that_are_wrong(tmp_path, text, said):
    path = tmp_path / "acl.yml"
    path.write_text(text)
    with pytest.raises(errors.ConfigError, match=said) as found:
        Broker.open(tmp_path / "s", profile="test", aclEnable=True, aclFile=str(path))
    assert str(path) in str(found.value) and "hijklmn" not in str(found.value)
    assert not (tmp_path / "s").exists()


def test_where_the_file_is(tmp_path, rules, monkeypatch):
    with pytest.raises(errors.ConfigError, match=r"plain_acl\.yml cannot be read"):
        Broker.open(tmp_path / "s", profile="test", aclEnable=True)
    (tmp_path / "s" / "config").mkdir(parents=True)
    (tmp_path / "s" / "config" / "plain_acl.yml").write_text(RULES)
    with Broker.open(tmp_path / "s", profile="test", aclEnable=True) as broker:
        assert broker.acl_enabled
    more = tmp_path / "acl" / "more"
    more.mkdir(parents=True)
    with pytest.raises(errors.ConfigError, match=r"no \.yml"):
        Broker.open(tmp_path / "t", profile="test", acl_enable=True, acl_file=str(tmp_path / "acl"))
    (more / "a.yaml").write_text(RULES)
    (more.parent / "b.yml").write_text("accounts: [{accessKey: abcdefg, secretKey: hijklmn, defaultTopicPerm: PUB}]")
    with Broker.open(tmp_path / "t", profile="test", acl_enable=True, acl_file=str(tmp_path / "acl")) as broker:
        for who in (("RocketMQ", "12345678a"), ("abcdefg", "hijklmn")):
            with Signer(broker.address, *who) as signer:
                assert signer.put("topicB").code == 0
    with pytest.raises(errors.ConfigError, match="aclEnable instead"):
        Broker.open(tmp_path / "t", profile="test", authenticationEnabled="true")
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(errors.ConfigError, match="PyYAML"):
        Broker.open(tmp_path / "t", profile="test", aclEnable=True, aclFile=str(rules))


def test_the_example_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "broker.md").read_text()
    rules = read_rules({"page": page.partition("```yaml\n")[2].partition("```")[0].encode()})
    assert rules.accounts["administrator"].admin
    assert rules.accounts["orders-service"].perms == {"Orders": PUB, "%RETRY%billing": SUB}


@pytest.mark.parametrize(("text", "matching", "others"), [
    ("*", ["1.2.3.4", "::1"], []), ("192.168.0.1", ["192.168.0.1", "::ffff:192.168.0.1"], ["192.168.0.10", "::1", "x"]),
    ("192.168.*.*", ["192.168.7.9"], ["192.169.0.1"]), ("192.168.0.10-20", ["192.168.0.10", "192.168.0.20"], ["192.168.0.21"]),
    ("192.168.0.{1,7}", ["192.168.0.1", "192.168.0.7"], ["192.168.0.2"]), ("1.1.1.1, 2.2.2.2", ["2.2.2.2"], ["1.1.1.2"]),
    ("fd00::1", ["fd00:0::1"], ["fd00::2"]), ("fd00::{1,a}", ["fd00::a"], ["fd00::b"]),
    ("fd00:*:*:*:*:*:*:1-f", ["fd00:1::a"], ["fd00::10", "fe00::1"]), ("fd00::7:1-20:*", ["fd00::7:1f:9"], ["fd00::7:21:9"])])
def test_addresses(text, matching, others):
    white, = read_rules({"f": f"globalWhiteRemoteAddresses: ['{text}']".encode()}).white
    assert [one for one in matching if not white(one)] == [] and [one for one in others if white(one)] == []


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_is_a_send_but_to_the_topic_of_replies(user, code):
    """RocketMQ stores it in any topic for any account."""
    user.beat("replies", producers=["P"])
    names = dict(zip("abcdefghi", ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
                                   "bornTimestamp", "flag", "properties"), strict=True))
    said = {"a": "P", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "REPLY_TO_CLIENT\x01replies\x02"}

    def reply(topic):
        fields = said | {"b": topic}
        return user.ask(code, b"x", **(fields if code == 325 else {names[name]: value for name, value in fields.items()}))

    assert reply("DefaultCluster_REPLY_TOPIC").code == reply("topicB").code == 0
    for topic in ("topicA", "topicC", "Other_REPLY_TOPIC"):
        refused(reply(topic), f"No default permission for topic:{topic}")


def test_who_may_not_send_to_a_topic_takes_no_message_of_it_back(user):
    refused(user.ask(370, topic="topicC", recallHandle="x"), "No default permission for topic:topicC")
    assert WORD not in user.ask(370, topic="topicB", recallHandle="x").remark


def test_who_may_not_commit_an_offset_resets_none(user):
    fields = {"timestamp": 0, "isForce": "true"}
    refused(user.ask(222, topic="topicA", group="groupC", **fields), "No default permission for topic:topicA")
    refused(user.ask(222, topic="topicB", group="groupA", **fields), "No default permission for group:groupA")
    assert WORD not in user.ask(222, topic="topicB", group="groupC", **fields).remark


@pytest.mark.parametrize("code", [310, 320, 325])
def test_a_send_of_letters_goes_where_its_letter_says(guarded, user, code):
    """A long name beside the letter is no field of these headers: it names a topic that nobody has checked."""
    body = encode_batch([b"x"]) if code == 320 else b"x"
    with Signer(guarded.address, "rocketmq2", "87654321b") as boss:
        assert boss.put("topicA").code == boss.put("topicB").code == 0
    assert guarded.store.wait_dispatched(10)
    before = guarded.store.max_offset("topicA", 0)
    user.beat("replies", producers=["P"])
    letters = {"a": "P", "b": "topicB", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0,
               "i": "REPLY_TO_CLIENT\x01replies\x02"}
    assert user.ask(code, body, **letters, topic="topicA").code == 0
    assert guarded.store.wait_dispatched(10)
    assert guarded.store.max_offset("topicA", 0) == before
