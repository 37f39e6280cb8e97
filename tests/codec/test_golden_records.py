"""Encoding what Java was given makes the bytes that Java made; decoding them gives what Java's own decoder gave."""
import zlib

import pytest

from rmq_store.codec import layout
from rmq_store.codec._codec import (
    Blank,
    body_crc32,
    decode_record,
    encode_blank,
    encode_into,
    encode_record,
    record_size,
    tags_code,
    verify_record_crc,
)
from rmq_store.codec.batch import BatchMessage, decode_batch, encode_batch, expand_batch
from rmq_store.codec.delay import delay_rewrite
from rmq_store.codec.message_id import create_message_id, java_ip_text, split_host
from rmq_store.codec.properties import encode_properties
from tests.codec import golden_case as golden

# Records that were broken on purpose, or cut off, after Java had written them.
BROKEN = {"v4-crash-torncrc": 1, "v4-crash-tornzero": 1, "v5-crash-torncrc": 1, "v5-crash-tornzero": 1,
          "v5-crash-shortfile": 58}


def encode(case, entry):
    fields = golden.record_fields(entry)
    topic = entry["topic"]
    properties = bytes.fromhex(entry["propsHex"])
    if case.startswith("v4"):       # for 5.x the broker rewrites delayed messages before the store sees them
        rewritten = delay_rewrite(topic, entry["queueId"], properties, sys_flag=entry["sysFlag"], compat="4.9")
        if rewritten:
            topic, fields["queue_id"], properties = rewritten
    return encode_record(topic, bytes.fromhex(entry["body"]), properties=properties, flag=entry["flag"],
                         reconsume_times=entry["reconsume"], prepared_transaction_offset=entry["prepOffset"],
                         compat=golden.compat(case), crc_property=case == "v5-propcrc", **fields)


def expand(case, entry):
    messages = [BatchMessage(bytes.fromhex(m["body"]), bytes.fromhex(m["propsHex"]), m["flag"]) for m in entry["messages"]]
    batch = encode_batch(messages, golden.compat(case))
    assert zlib.crc32(batch) == entry["encodedCrc32"]
    assert decode_batch(batch) == messages
    return expand_batch(batch, entry["topic"], properties=bytes.fromhex(entry["batchPropsHex"]), compat=golden.compat(case),
                        **golden.record_fields(entry))


@pytest.mark.parametrize("case", golden.CASES)
def test_encoding_the_inputs_gives_the_bytes_of_java(case):
    broken = compared = 0
    for entry in golden.inputs(case):
        record = encode(case, entry) if entry["api"] == "putMessage" else expand(case, entry)
        assert len(record) == entry["wroteBytes"]
        java = golden.log_bytes(case, entry["wroteOffset"], len(record))
        compared += record == java
        broken += record != java
    assert broken == BROKEN.get(case, 0)
    assert compared == len(golden.inputs(case)) - broken


@pytest.mark.parametrize("case", golden.CASES)
def test_mappings_encode_as_java_encodes_them(case):
    """The harness gave Java maps in the order of their properties strings, with 5.x ending them with 0x02, 4.9 not."""
    for entry in golden.inputs(case):
        for message in entry.get("messages", [entry]):
            given = bytes.fromhex(message["propsHex"])
            pieces = [p.partition("\x01") for p in given.decode().split("\x02") if p]
            mapping = {name: value for name, _, value in pieces}
            assert mapping == message["props"]
            encoded = encode_properties(mapping, golden.compat(case))
            assert encoded == given or encoded + b"\x02" == given


@pytest.mark.parametrize("case", golden.CASES)
def test_decoding_gives_what_java_decoded(case):
    seen = 0
    for line in golden.expected(case):
        if line["t"] == "log" and line["kind"] == "blank":
            start = line["phyOffset"]
            data = golden.log_bytes(case, start, 8)
            assert data == encode_blank(line["size"])
            blank = decode_record(data)
            assert isinstance(blank, Blank) and blank.size == line["size"]
            continue
        if line["t"] != "msg" and (line["t"] != "log" or line["kind"] != "unqueued"):
            continue
        data = golden.log_bytes(case, line["phyOffset"], line["size"])
        record = decode_record(data)
        assert check_record(record, line)
        if line["t"] == "msg" and line["tagsCode"] > layout.EXT_ADDRESS_MAX:
            assert record.queue_tags_code() == line["tagsCode"]
            if record.topic != "SCHEDULE_TOPIC_XXXX":
                assert tags_code(record.properties.get("TAGS")) == line["tagsCode"]
        assert verify_record_crc(data) is (True if case == "v5-propcrc" else None)
        seen += 1
    assert seen or case.endswith("shortfile")


def check_record(record, line):
    assert record.size == line["size"] and record.magic & 0xFFFFFFFF == line["magic"]
    assert (record.topic, record.queue_id, record.queue_offset) == (line["topic"], line["queueId"], line["queueOffset"])
    assert (record.physical_offset, record.flag, record.sys_flag) == (line["phyOffset"], line["flag"], line["sysFlag"])
    assert (record.born_timestamp, record.store_timestamp) == (line["bornTs"], line["storeTs"])
    assert (record.reconsume_times, record.prepared_transaction_offset) == (line["reconsume"], line["prepOffset"])
    assert (record.body_crc, record.body_crc_ok) == (line["bodyCrc"], line["bodyCrcOk"])
    assert body_crc32(record.body) == line["bodyCrc"]
    assert record.body.hex() == line["body"] and record.properties_bytes.hex() == line["propsHex"]
    assert record.properties == line["props"]
    assert record.message_id == line["msgId"]
    for host, ip, port in ((record.born_host, line["bornIp"], line["bornPort"]),
                           (record.store_host, line["storeIp"], line["storePort"])):
        assert host.endswith(f":{port}") and (host.startswith("[") == (":" in ip))
    return True


@pytest.mark.parametrize("case", ["v4-crash-torncrc", "v5-crash-torncrc"])
def test_a_wrong_body_crc_is_seen(case):
    wrong = []
    for entry in golden.inputs(case):
        if entry["api"] == "putMessage":
            record = decode_record(golden.log_bytes(case, entry["wroteOffset"], entry["wroteBytes"]))
            wrong += [entry["i"]] if not record.body_crc_ok else []
    assert len(wrong) == 1


@pytest.mark.parametrize("case", ["v4-ipv6", "v5-ipv6"])
def test_hosts_read_as_java_writes_them(case):
    for line in golden.expected(case):
        if line["t"] == "msg":
            rows = layout.describe(golden.log_bytes(case, line["phyOffset"], line["size"]))
            born, store = rows[9].data, rows[11].data
            assert (java_ip_text(born[:-4]), split_host(born)[1]) == (line["bornIp"], line["bornPort"])
            assert (java_ip_text(store[:-4]), split_host(store)[1]) == (line["storeIp"], line["storePort"])
            assert create_message_id(store, line["phyOffset"]) == line["msgId"]


@pytest.mark.parametrize("case", ["v4-plain", "v5-propcrc", "v5-longtopic"])
def test_encode_into_writes_its_record_and_nothing_else(case):
    entry = golden.inputs(case)[-1]
    fields = golden.record_fields(entry)
    fields.update(properties=bytes.fromhex(entry["propsHex"]), flag=entry["flag"], reconsume_times=entry["reconsume"],
                  prepared_transaction_offset=entry["prepOffset"], compat=golden.compat(case),
                  crc_property=case == "v5-propcrc")
    body = bytes.fromhex(entry["body"])
    size = record_size(entry["topic"], body, **fields)
    buffer = bytearray(b"\xee" * (size + 7))
    assert encode_into(buffer, 3, entry["topic"], body, **fields) == size == entry["wroteBytes"]
    assert buffer == b"\xee" * 3 + golden.log_bytes(case, entry["wroteOffset"], size) + b"\xee" * 4
    with pytest.raises(ValueError, match="takes"):
        encode_into(buffer, 8, entry["topic"], body, **fields)
    with pytest.raises(ValueError, match="takes"):
        encode_into(buffer, -1, entry["topic"], body, **fields)
