"""The files under config/: upstream's dialect, upstream's own examples, damage, and a write that is broken off."""
import errno
import json
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.config.upstream_json import dump_json, int_keys, parse_json

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False}

# As the article prints it.
ARTICLE = """{
    "offsetTable":{
        "%RETRY%ConsumerA@ConsumerA":{0:0},
        "Topic-01@ConsumerA":{0:3,1:2,2:2,3:3}
    }
}
"""

# As fastjson 1.2.69 writes it (JSON.toJSONString(x, true)), with a nested list and every kind of character.
FASTJSON = """{
\t"dataVersion":{
\t\t"counter":3,
\t\t"stateVersion":0,
\t\t"timestamp":1600000000000
\t},
\t"offsetTable":{
\t\t"%RETRY%ConsumerA@ConsumerA":{0:0
\t\t},
\t\t"Topic-01@ConsumerA":{0:3,1:2,2:2,3:3
\t\t},
\t\t"E@G":{}
\t}
}"""
FASTJSON_LISTS = """{
\t"list":[
\t\t"a",
\t\t"b",
\t\t1
\t],
\t"empty":[],
\t"nested":[
\t\t{
\t\t\t"k":"v"
\t\t}
\t],
\t"uni":"é\\n\\"\\\\/\\t<中",
\t"b":true,
\t"emptymap":{}
}"""


@pytest.mark.parametrize("text", [
    pytest.param('{' + '\\"' * 500_000, id="quotes"), pytest.param('{"' + '\\\n"' * 300_000, id="lines"),
    pytest.param('{' + ',1 ' * 300_000, id="keys"), pytest.param('{1' + ' ' * 1_000_000, id="blanks"),
    pytest.param('{"a":"' + 'x' * 1_000_000 + '\\', id="one")])
def test_a_text_that_is_no_json_takes_no_time(text):
    """Of an enemy, who gives quotes without an end: looking from each of them up to the end would take hours."""
    with pytest.raises(ValueError):
        parse_json(text)


def test_number_keys_and_strings_beside_each_other():
    assert parse_json('{1:"{2:3",-4 : {5:"\\\\"},"a,6:":7}') == {"1": "{2:3", "-4": {"5": "\\"}, "a,6:": 7}


def test_what_fastjson_writes_is_read_and_written_the_same():
    content = parse_json(FASTJSON)
    table = {key: int_keys(queues) for key, queues in content["offsetTable"].items()}
    assert table == {"%RETRY%ConsumerA@ConsumerA": {0: 0}, "Topic-01@ConsumerA": {0: 3, 1: 2, 2: 2, 3: 3}, "E@G": {}}
    assert dump_json(content | {"offsetTable": table}) == FASTJSON
    assert dump_json(parse_json(FASTJSON_LISTS)) == FASTJSON_LISTS


@pytest.mark.parametrize("text", [
    '{"a{0:1,2:3}":{0:1}}', r'{"x\"{1:":{5:-7}}', '{ 1 : 2 ,\n\t-3\t:4}', '{"0":1}', "{}"])
def test_numbers_as_keys_only_where_keys_stand(text):
    plain = text.replace("{0:1}}", '{"0":1}}').replace("{5:-7}", '{"5":-7}').replace(" 1 :", '"1":').replace("-3\t", '"-3"')
    assert parse_json(text) == json.loads(plain)
    assert json.loads(json.dumps(parse_json(text))) == parse_json(text)


@pytest.mark.parametrize("text", ["", "{", "{0:1,}", "[" * 100_000, '{"a":NaN', "\0", '{"a" 1}'])
def test_what_is_no_json(text):
    with pytest.raises(ValueError):
        parse_json(text)


def store_with(root, **files):
    with MessageStore.open(root, **SMALL):
        pass
    (root / "config").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "config" / name.replace("_bak", ".json.bak").replace("_json", ".json")).write_text(text)
    return root


def test_the_article_s_example_loads_verbatim(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_json=ARTICLE)
    with MessageStore.open(root, **SMALL) as s:
        assert s.offsets.table() == {("%RETRY%ConsumerA", "ConsumerA"): {0: 0},
                                     ("Topic-01", "ConsumerA"): {0: 3, 1: 2, 2: 2, 3: 3}}
        assert s.offsets.query("ConsumerA", "Topic-01", 3) == 3 and s.offsets.query("ConsumerA", "Topic-01", 4) == -1
        assert s.offsets.groups() == ["ConsumerA"] and s.offsets.topics("ConsumerA") == ["%RETRY%ConsumerA", "Topic-01"]
        s.offsets.commit("ConsumerA", "Topic-01", 0, 4)
    text = (root / "config" / "consumerOffset.json").read_text()
    assert '\t\t"Topic-01@ConsumerA":{0:4,1:2,2:2,3:3\n\t\t}' in text and '"stateVersion":0' in text
    assert (root / "config" / "consumerOffset.json.bak").read_text() == ARTICLE


def test_4_9_has_no_version_and_what_is_unknown_stays(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_json='{"offsetTable":{},"more":{"a":[1]}}')
    with MessageStore.open(root, compat="4.9", **SMALL) as s:
        s.offsets.commit("G", "T", 0, 1)
    assert parse_json((root / "config" / "consumerOffset.json").read_text()) == {"offsetTable": {"T@G": {"0": 1}},
                                                                                "more": {"a": [1]}}


@pytest.mark.parametrize("damage", ["", "  \n", "{", '{"offsetTable":{"T@G":{0:"x"}}}', '{"offsetTable":[]}', "[]", "\udcff"])
def test_damage_uses_the_bak_and_says_so(tmp_path, caplog, damage):
    root = store_with(tmp_path / "s", consumerOffset_bak=ARTICLE)
    (root / "config" / "consumerOffset.json").write_bytes(damage.encode("utf-8", "surrogateescape"))
    with MessageStore.open(root, **SMALL) as s:
        assert s.offsets.query("ConsumerA", "Topic-01", 0) == 3
        assert [r.fields["file"] for r in caplog.records if r.event == "CONFIG_BACKUP_USED"] == [
            str(root / "config" / "consumerOffset.json.bak")]
        s.offsets.commit("ConsumerA", "Topic-01", 0, 4)
    # what is damaged never takes the place of the good copy
    assert (root / "config" / "consumerOffset.json.bak").read_text() == ARTICLE
    with MessageStore.open(root, **SMALL) as s:
        assert s.offsets.query("ConsumerA", "Topic-01", 0) == 4


def test_a_missing_file_uses_the_bak(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_bak=ARTICLE)
    with MessageStore.open(root, readonly=True, **SMALL) as s:
        assert s.offsets.query("ConsumerA", "Topic-01", 0) == 3


def test_both_damaged_is_an_error_that_leaves_everything_as_it_is(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_json="{", consumerOffset_bak="[]")
    with MessageStore.open(root, **SMALL) as s:
        with pytest.raises(errors.ConfigFileCorrupted, match=r"consumerOffset\.json: expected the content.*correct the JSON"):
            s.offsets.commit("G", "T", 0, 1)
        assert s.put("T", b"x").status == 0             # messages have nothing to do with it
    assert (root / "config" / "consumerOffset.json").read_text() == "{"


def test_killed_at_any_step_of_a_write_one_of_the_two_is_whole(tmp_path):
    for nth in range(1, 30):
        root = tmp_path / str(nth)
        with MessageStore.open(root, **SMALL) as s:
            s.offsets.commit("G", "T", 0, 1)
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(root, _io=probe, **SMALL)
        store.offsets.commit("G", "T", 0, 2)
        probe.freeze("mutate", nth)
        store.offsets.flush()
        frozen = probe.frozen
        store.close()
        with MessageStore.open(root, **SMALL) as s:
            assert s.offsets.query("G", "T", 0) in (1, 2)
        if not frozen:
            assert nth > 5
            return
    raise AssertionError("never came to the end")


def test_a_full_disk_keeps_the_old_offsets_and_the_new_ones_are_tried_again(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as s:
        s.offsets.commit("G", "T", 0, 1)
        s.offsets.flush()
        s.offsets.commit("G", "T", 0, 2)
        probe.fail("pwrite", errno=errno.ENOSPC, path="/config/", sticky=True)
        with pytest.raises(OSError, match="No space left"):
            s.offsets.flush()
        with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as other:
            assert other.offsets.query("G", "T", 0) == 1
        probe.clear()
        s.offsets.flush()
        with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as other:
            assert other.offsets.query("G", "T", 0) == 2


def test_the_three_files_are_written_by_themselves(tmp_path):
    """Every offsets_flush_interval_ms, by the control thread; a write that fails is said once, and tried again."""
    probe = ProbeIo(keep_bytes=False)
    config = tmp_path / "s" / "config"
    with MessageStore.open(tmp_path / "s", _io=probe, offsets_flush_interval_ms=1, **SMALL) as s:
        s.offsets.commit("G", "T", 0, 3)
        s.topic_table.set("T")
        s.group_table.set("G")
        wait_for(config / "consumerOffset.json", '"T@G":{0:3')
        wait_for(config / "topics.json", '"topicName":"T"')
        wait_for(config / "subscriptionGroup.json", '"groupName":"G"')
        probe.fail("pwrite", errno=errno.ENOSPC, path="/config/", sticky=True)
        s.offsets.commit("G", "T", 0, 4)
        while probe.hits < 2:
            time.sleep(0.001)
        probe.clear()
        wait_for(config / "consumerOffset.json", '"T@G":{0:4')


def wait_for(path, text):
    while not path.exists() or text not in path.read_text():
        time.sleep(0.001)


def test_offsets_are_on_the_device_only_after_the_log(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as s:
        s.put("T", b"x")
        s.offsets.commit("G", "T", 0, 1)
        s.offsets.flush()
        assert s.stats()["flushed"] == s.stats()["wrote"] > 0


@pytest.mark.parametrize(("group", "topic", "queue", "offset", "words"), [
    ("", "T", 0, 0, "group is ''"), ("a@b", "T", 0, 0, "group is 'a@b'"), ("G", "", 0, 0, "topic is ''"),
    ("G", "T", -1, 0, "queue_id is -1"), ("G", "T", 0, -1, "offset is -1"), ("G", "T", 0, 1 << 63, "offset is 92233720368547"),
    ("G", "T", 0, 1.5, "offset is 1.5"), ("G", "T", True, 0, "queue_id is True"), ("G", 7, 0, 0, "topic is 7")])
def test_what_cannot_be_committed(tmp_path, group, topic, queue, offset, words):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            s.offsets.commit(group, topic, queue, offset)
        assert s.offsets.table() == {}


def test_topics_and_groups_in_upstreams_shape(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as s:
        assert s.topic_table.set("T", readQueueNums=2, writeQueueNums=2)["perm"] == 6
        s.group_table.set("G", retryMaxTimes=3)
        with pytest.raises(ValueError, match="queues is 2: a topic has attributes, order, perm"):
            s.topic_table.set("T", queues=2)
    with MessageStore.open(root, **SMALL) as s:
        assert s.topic_table.get("T")["writeQueueNums"] == 2 and s.group_table.retry_max("G") == 3
        assert s.group_table.retry_max("other") == 16 and s.topic_table.get("U") is None
        assert s.topic_table.remove("T") and not s.topic_table.remove("T")
    assert '"topicConfigTable":{}' in (root / "config" / "topics.json").read_text()
    fields = list(parse_json((root / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]["G"])
    assert fields == sorted(fields) and len(fields) == 13


def test_readonly_changes_nothing(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_json=ARTICLE)
    with MessageStore.open(root, readonly=True, **SMALL) as s:
        for call in (lambda: s.offsets.commit("G", "T", 0, 1), lambda: s.offsets.remove("ConsumerA"),
                     lambda: s.group_table.set("G"), lambda: s.topic_table.remove("T"), lambda: s.consumer("G", "T")):
            with pytest.raises(errors.StoreNotWriteable):
                call()
        s.offsets.flush()
    assert (root / "config" / "consumerOffset.json").read_text() == ARTICLE


def test_forgetting_a_group(tmp_path):
    root = store_with(tmp_path / "s", consumerOffset_json=ARTICLE)
    with MessageStore.open(root, **SMALL) as s:
        assert s.offsets.remove("ConsumerA", "Topic-01") == 4 and s.offsets.remove("ConsumerA") == 1
        assert s.offsets.remove("ConsumerA") == 0


@pytest.mark.parametrize(("name", "text", "words"), [
    ("consumerOffset_json", '{"offsetTable":{"T@G":{0:9223372036854775808}}}', "9223372036854775808"),
    ("consumerOffset_json", '{"offsetTable":{"T@G":{0:-9223372036854775809}}}', "-9223372036854775809"),
    ("consumerOffset_json", '{"offsetTable":{"\\ud800@G":{0:1}}}', "surrogates"),
    ("consumerOffset_json", '{"offsetTable":{},"more":1e400}', "JSON compliant"),
    ("topics_json", '{"topicConfigTable":{"T":{"order":NaN}}}', "JSON compliant"),
    ("topics_json", '{"topicConfigTable":{},"more":' + "[" * 70 + "]" * 70 + "}", "nested too deeply"),
    ("subscriptionGroup_json", '{"subscriptionGroupTable":{"\\udfff":{}}}', "surrogates")])
def test_what_could_not_be_used_or_written_again_is_damage(tmp_path, name, text, words):
    """It was an OverflowError in poll(), or a ValueError in close()."""
    root = store_with(tmp_path / "s", **{name: text})
    with MessageStore.open(root, **SMALL) as s:
        s.put("T", b"x", wait=True)
        assert s.wait_dispatched(10)
        with pytest.raises(errors.ConfigFileCorrupted, match=words), s.consumer("G", "T") as c:
            c.poll(timeout=0)
    assert (root / "config" / name.replace("_", ".")).read_text() == text
