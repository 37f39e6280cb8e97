"""dump against files of the real RocketMQ: every unit of every file, what is wrong in broken ones, and no content is
too bad to be shown."""
import gzip
import json
import os
import pathlib
import zlib

import pytest

GOLDEN = pathlib.Path(os.environ.get("RMQ_GOLDEN", pathlib.Path(__file__).parents[1] / "golden"))

CASES = ["v4-plain", "v4-roll", "v4-cqext", "v4-ipv6", "v5-propcrc", "v5-longtopic", "v5-batch"]


def expected(case):
    with gzip.open(GOLDEN / case / "expected.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", CASES)
def test_log_records_are_those_the_real_store_returns(case, golden, json_lines):
    code, lines = json_lines("dump", *sorted((golden(case) / "commitlog").iterdir()), "--body", "hex")
    assert code == 0
    assert [(x["kind"].replace("record", "msg"), x["offset"], x["size"]) for x in lines if x["kind"] in ("record", "blank")] \
        == [(x["kind"].replace("unqueued", "msg"), x["phyOffset"], x["size"]) for x in expected(case) if x["t"] == "log"]
    found = {x["offset"]: x for x in lines if x["kind"] == "record"}
    for want in expected(case):
        if want["t"] == "msg":
            got = found[want["phyOffset"]]
            assert (got["topic"], got["queue_id"], got["queue_offset"], got["body"], got["msg_id"], got["properties"]) == \
                (want["topic"], want["queueId"], want["queueOffset"], want["body"], want["msgId"], want["props"])


@pytest.mark.parametrize("case", ["v4-roll", "v4-cqext", "v4-delaytx"])
def test_queue_entries_lead_where_the_real_store_goes(case, golden, json_lines):
    files = sorted(p for p in (golden(case) / "consumequeue").rglob("*") if p.is_file())
    code, lines = json_lines("dump", *files)
    assert code == 0
    got = {(x["topic"], int(x["queue_id"]), x["queue_offset"]): (x["commitLogOffset"], x["recordSize"], x["tagsCode"])
           for x in lines if x["kind"] == "entry"}
    assert got == {(x["topic"], x["queueId"], x["cqOffset"]): (x["cqPhyOffset"], x["cqSize"], x["tagsCode"])
                   for x in expected(case) if x["t"] == "msg"}


def test_extension_units_have_the_address_of_their_entry(golden, json_lines):
    files = sorted(p for p in (golden("v4-cqext") / "consumequeue_ext").rglob("*") if p.is_file())
    code, lines = json_lines("dump", *files, "--hex")
    assert code == 0
    units = {(x["topic"], int(x["queue_id"]), x["address"]): x for x in lines if x["kind"] == "unit"}
    wanted = [x for x in expected("v4-cqext") if x["t"] == "msg" and "ext" in x]
    assert len(units) == len(wanted) > 100
    for want in wanted:
        got = units[want["topic"], want["queueId"], want["tagsCode"]]
        bits = next((f["bytes"] for f in got["fields"] if f["name"] == "filterBitMap"), "")
        assert (got["tagsCode"], got["msgStoreTime"], bits) == tuple(want["ext"][k] for k in ("tagsCode", "storeTs", "bitMap"))


@pytest.mark.parametrize(("case", "slots", "entries"), [("v4-roll", 16, 96), ("v4-plain", 512, 2048), ("v5-roll", 16, 96)])
def test_index_slots_are_found_out_and_entries_lead_to_records(case, slots, entries, golden, json_lines):
    store = golden(case)
    records = {x["phyOffset"]: x for x in expected(case) if x["t"] in ("msg", "log")}
    for file in sorted((store / "index").iterdir()):
        code, lines = json_lines("dump", file)
        assert code == 0
        assert lines[0]["kind"] == "header" and (lines[0]["slots"], lines[0]["entries_max"]) == (slots, entries)
        assert len(lines) == lines[0]["indexCount"]
        for line in lines[1:]:
            assert line["phyOffset"] in records
            assert line["slot"] == line["keyHash"] % slots


def test_small_files(golden, json_lines, rmqstore):
    store = golden("v5-crash-torncrc")
    code, lines = json_lines("dump", store / "checkpoint", store / "abort", store / "lock")
    assert code == 0
    assert lines[0]["physicMsgTimestamp"] > 1_600_000_000_000
    assert lines[1]["text"].isdigit()
    assert lines[2]["text"] == "lock"
    code, out, _ = rmqstore("dump", golden("v4-crash-live") / "abort")
    assert code == 0 and "empty" in out


def test_a_wrong_crc_is_a_finding(golden, json_lines):
    files = sorted((golden("v5-crash-torncrc") / "commitlog").iterdir())
    code, lines = json_lines("dump", *files)
    wrong = [x for x in lines if "finding" in x]
    assert code == 1
    assert [x["finding"] for x in wrong] == ["the CRC of the body is wrong"]


def test_a_torn_record_ends_the_log(golden, json_lines):
    for case in ("v5-crash-tornzero", "v4-crash-garbagetail"):
        code, lines = json_lines("dump", *sorted((golden(case) / "commitlog").iterdir()))
        (wrong,) = [x["finding"] for x in lines if "finding" in x]
        assert code == 1 and "recovery cuts here" in wrong


def test_hex_names_every_byte_of_a_record(golden, json_lines, rmqstore):
    file = golden("v4-ipv6") / "commitlog" / ("0" * 20)
    code, lines = json_lines("dump", file, "--hex", "--count", "5")
    assert code == 0 and len(lines) == 5
    raw = file.read_bytes()
    for line in lines:
        assert [f["number"] for f in line["fields"]] == list(range(1, 21))
        assert bytes.fromhex("".join(f["bytes"] for f in line["fields"])) == raw[line["position"]:][:line["size"]]
    crc = next(f for f in lines[0]["fields"] if f["name"] == "bodyCRC")
    body = next(f for f in lines[0]["fields"] if f["name"] == "body")
    assert int(crc["bytes"], 16) == zlib.crc32(bytes.fromhex(body["bytes"])) & 0x7FFFFFFF
    _, out, _ = rmqstore("dump", file, "--hex", "--count", "1")
    assert len(out.splitlines()) == 22 and "storeHostAddress" in out


def test_begin_in_the_middle(golden, json_lines, rmqstore):
    file = golden("v4-roll") / "commitlog" / "00000000000000065536"
    _, every = json_lines("dump", file)
    second = every[1]["offset"]
    _, lines = json_lines("dump", file, "--from", second, "--count", "1")
    assert lines == [every[1]]
    code, _, err = rmqstore("dump", file, "--from", "5")
    assert code == 64 and "which is 65536" in err


def test_what_is_no_store_file(tmp_path, rmqstore):
    (tmp_path / "letter.txt").write_text("dear sir")
    code, _, err = rmqstore("dump", tmp_path / "letter.txt")
    assert code == 3 and "--kind" in err
    assert rmqstore("dump", tmp_path)[0] == 3
    assert rmqstore("dump", tmp_path / "missing")[0] == 3


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint", "abort", "lock"])
@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"\xff" * 100, b"\x7f" * 100, bytes(range(256)) * 20,
                                     b"\0\0\0\x64\xda\xa3\x20\xa7" + b"\x7f" * 200])
def test_no_content_is_too_bad(kind, content, tmp_path, json_lines):
    file = tmp_path / "00000000000000000000"
    file.write_bytes(content)
    code, _ = json_lines("dump", file, "--kind", kind, "--hex")
    assert code in (0, 1)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file_is_named_and_makes_nobody_wait(kind, tmp_path, rmqstore):
    path = tmp_path / "checkpoint"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = pathlib.Path("/dev/zero")
    else:
        path.mkdir()
    code, _, err = rmqstore("dump", path, "--kind", "checkpoint")
    assert code == 3
    assert str(path) in err and "file" in err
