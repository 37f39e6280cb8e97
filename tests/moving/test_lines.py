"""JSON lines out and in: what `get --json` prints, every byte comes back, each message once, wherever it is broken off."""
import io as streams
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.upkeep.moving import journal, lines
from rmq_store.upkeep.moving.lines import export_lines, import_lines
from tests.integrity.test_golden_silent import content
from tests.moving.conftest import SMALL, got, rows
from tests.moving.test_copy import Died, die_at


def exported(root, **how):
    out = streams.BytesIO()
    result = export_lines(root, out, **how)
    return out.getvalue(), result


def test_a_line_is_what_get_prints(mixed, rmqstore):
    before = content(mixed)
    text, result = exported(mixed)
    found = [json.loads(line) for line in text.splitlines()]
    assert result.messages == len(found) == 64 and result.left == {"delivered": 17, "retry": 1, "system": 1, "transaction": 2}
    for topic, queue in (("T", 0), ("T", 2), ("Bytes", 0), ("Empty", 0)):
        _, out, _ = rmqstore("get", mixed, "-t", topic, "-q", queue, "--json", "-c", 100)
        expected = [json.loads(line) for line in out.splitlines()]
        assert expected and [x for x in found if (x["topic"], x["queue_id"]) == (topic, queue)] == expected
    assert content(mixed) == before


def test_everything_comes_back(mixed, tmp_path):
    text, _ = exported(mixed)
    assert import_lines(streams.BytesIO(text), tmp_path / "to", **SMALL).messages == 64
    again, _ = exported(tmp_path / "to")
    placed = ("offset", "msg_id", "store_timestamp", "queue_offset", "sys_flag", "size")

    def kept(lines_):
        return [{k: v for k, v in json.loads(line).items() if k not in placed} for line in lines_.splitlines()]

    assert kept(again) == kept(text)
    assert got(tmp_path / "to", "Bytes") == [bytes(range(256))]
    assert [b for t, _, b in rows(tmp_path / "to") if t == "SCHEDULE_TOPIC_XXXX"] == [b"waits %d" % i for i in range(3)]


def test_odd_properties_come_back_to_the_byte(tmp_path):
    odd = [b"A\x01\xff\xfe\x02", b"A\x01x\x02A\x01y\x02", b"A\x01", b"\x02\x02A\x01x"]
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for raw in odd:
            store.put("T", b"x", properties=raw)
    text, _ = exported(tmp_path / "from")
    import_lines(streams.BytesIO(text), tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "from", readonly=True) as a, MessageStore.open(tmp_path / "to", readonly=True) as b:
        assert [m.properties_raw for m in a.scan()] == [m.properties_raw for m in b.scan()]


def test_the_least_line(tmp_path):
    import_lines(streams.BytesIO(b'{"topic":"T","body":"x","tags":"a","keys":"k"}\n\n{"topic":"T","body":"","queue_id":1}'),
                 tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", readonly=True) as store:
        first = store.get("T", 0, 0).messages[0]
        assert (first.tags, first.keys, bytes(first.body)) == ("a", "k", b"x")
        assert len(store.query_key("T", "k")) == 1 and len(store.get("T", 1, 0)) == 1
        del first


WRONG = [
    (b"no json", "line 3 is not a message"), (b"[1]", "line 3 is not a message"), (b'{"topic":"U"}', "line 3 has no 'body'"),
    (b'{"body":"U"}', "line 3 has no 'topic'"), (b'{"topic":"U","body":5}', "body is int: give text"),
    (b'{"topic":"U","body":"","properties":[1]}', "properties is list: give an object of text"),
    (b'{"topic":"U","body":"zz","body_as":"hex"}', "line 3"), (b'{"topic":"U","body":"zz","body_as":"base64"}', "base64"),
    (b'{"topic":"U","body":"","queue_id":-1}', "queue_id is -1"), (b'{"topic":"U","body":"","flag":true}', "flag is True"),
    (b'{"topic":"U","body":"","born_host":"nowhere"}', "line 3"), (b'{"topic":"U","body":"","properties":{"a":5}}', "property"),
    (b'{"topic":"U","body":"","properties":{"a\\u0001":"5"}}', "line 3"), (b'{"topic":"../U","body":""}', "topic is '../U'")]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_a_wrong_line_is_named_and_what_is_before_it_is_stored(tmp_path, line, said):
    good = b'{"topic":"T","body":"1"}\n{"topic":"T","body":"2"}\n'
    with pytest.raises((errors.ConfigError, errors.MessageIllegal)) as caught:
        import_lines(streams.BytesIO(good + line + b"\n"), tmp_path / "to", **SMALL)
    told = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert said in told and "line" in told
    import_lines(streams.BytesIO(good + b'{"topic":"T","body":"3"}\n'), tmp_path / "to", **SMALL)
    assert got(tmp_path / "to", "T") == [b"1", b"2", b"3"]


def test_a_line_that_the_store_refuses_is_named_too(tmp_path):
    good = [b'{"topic":"T","body":"%d"}\n' % i for i in range(100)]
    for number, wrong in ((38, b'{"topic":"no.topic","body":""}\n'), (71, b'{"topic":"T","body":"%s"}\n' % (b"x" * 70000))):
        given = [*good[:number - 1], wrong, *good[number - 1:]]
        for _ in range(2):
            with pytest.raises(errors.MessageIllegal) as caught:
                import_lines(streams.BytesIO(b"".join(given)), tmp_path / "to", **SMALL)
            assert f"line {number};" in "".join(caught.value.__notes__)
            assert got(tmp_path / "to", "T") == [b"%d" % i for i in range(number - 1)]
    assert import_lines(streams.BytesIO(b"".join(good)), tmp_path / "to", **SMALL).messages == 30
    assert got(tmp_path / "to", "T") == [b"%d" % i for i in range(100)]


def test_a_last_line_without_its_end_is_known_again(tmp_path):
    text = b"".join(b'{"topic":"T","body":"%d"}\n' % i for i in range(4))
    for n in (1, 2, 2, 4):
        given = b"".join(text.splitlines(True)[:n])
        import_lines(streams.BytesIO(given[:-1]), tmp_path / "to", **SMALL)
        import_lines(streams.BytesIO(given), tmp_path / "to", **SMALL)
    assert got(tmp_path / "to", "T") == [b"%d" % i for i in range(4)]


def test_a_line_that_does_not_say_when_was_born_when_it_was_imported(tmp_path):
    lines_given = b'{"topic":"T","body":""}\n{"topic":"T","body":"","born_timestamp":7}'
    import_lines(streams.BytesIO(lines_given), tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", readonly=True) as store:
        new, told = [(m.born_timestamp, m.store_timestamp) for m in store.scan("T", 0)]
    assert told[0] == 7 and 0 <= new[1] - new[0] < 600_000


def test_transactions_that_no_consumer_saw_stay_unseen(mixed, tmp_path):
    """Lines of an export of everything have them."""
    out = streams.BytesIO()
    export_lines(mixed, out, whole=True)
    given = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {4, 12} <= {each["sys_flag"] & 12 for each in given}
    done = import_lines(streams.BytesIO(out.getvalue()), tmp_path / "to", **SMALL)
    assert done.left == {"transaction": 2} and done.messages == len(given) - 2
    bodies = [body for _, _, body in rows(tmp_path / "to", ["T"])]
    assert b"committed" in bodies and not {b"prepared", b"rolled back"} & set(bodies)
    assert import_lines(streams.BytesIO(out.getvalue()), tmp_path / "to", **SMALL).messages == 0


def test_lines_that_were_added_and_others(tmp_path):
    text = b"".join(b'{"topic":"T","body":"%d"}\n' % i for i in range(100))
    for n in (30, 60, 60, 100):
        at = sum(len(line) for line in text.splitlines(True)[:n])
        import_lines(streams.BytesIO(text[:at]), tmp_path / "to", **SMALL)
    assert got(tmp_path / "to", "T") == [b"%d" % i for i in range(100)]
    other = text.replace(b'"50"', b'"fifty"')
    with pytest.raises(errors.StoreStateError, match="--name"):
        import_lines(streams.BytesIO(other), tmp_path / "to", **SMALL)
    assert import_lines(streams.BytesIO(other), tmp_path / "to", name="second", **SMALL).messages == 100


def test_an_import_killed_anywhere_stores_each_line_once(tmp_path, memory_disk, monkeypatch):
    monkeypatch.setattr(lines, "PIECE", 700)
    text = b"".join(b'{"topic":"T","body":"%d"}\n' % (i % 9) for i in range(60))
    died = 0
    for nth in range(1, 300, 6):
        to = memory_disk / f"to{nth}"
        for n in (nth, nth // 2 + 1):
            probe = ProbeIo(keep_bytes=False)
            probe.freeze("mutate", n)
            try:
                import_lines(streams.BytesIO(text), to, _io=probe, **SMALL)
            except (errors.RmqStoreError, OSError, BufferError):
                pass
            died += probe.frozen
        import_lines(streams.BytesIO(text), to, **SMALL)
        assert got(to, "T") == [b"%d" % (i % 9) for i in range(60)], nth
    assert died > 30


def test_an_import_stopped_between_its_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE", 500)
    text = b"".join(b'{"topic":"T","body":"%d"}\n' % i for i in range(60))
    for nth in range(1, 6):
        die_at(monkeypatch, nth)
        with pytest.raises(Died):
            import_lines(streams.BytesIO(text), tmp_path / f"to{nth}", **SMALL)
        monkeypatch.setattr(journal, "_step", lambda name: None)
        import_lines(streams.BytesIO(text), tmp_path / f"to{nth}", **SMALL)
        assert got(tmp_path / f"to{nth}", "T") == [b"%d" % i for i in range(60)]


def test_an_export_goes_on_in_its_file(mixed, tmp_path, rmqstore):
    whole, _ = exported(mixed)
    out = tmp_path / "out.jsonl"
    for cut in (0, 5, 100, whole.index(b"\n") + 30, len(whole) // 2, len(whole) - 1, len(whole)):
        out.write_bytes(whole[:cut])
        code, _, err = rmqstore("export", mixed, out)
        assert (code, err) == (0, "") and out.read_bytes() == whole
    with MessageStore.open(mixed, _services=False, **SMALL) as store:
        store.put("T", b"more")
    assert rmqstore("export", mixed, out)[0] == 0
    assert out.read_bytes().startswith(whole) and len(out.read_bytes().splitlines()) == 65


def test_an_export_with_another_choice_is_not_gone_on_with(tmp_path, rmqstore):
    """Or what that choice had before the last line would be missing."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(50):
            store.put("AB"[i % 2], b"%d" % i)
    choices = [["-t", "A"], ["-t", "B"], [], ["-t", "A", "-t", "B"]]
    for first in choices[:2]:
        out = tmp_path / f"{first[1]}.jsonl"
        assert rmqstore("export", tmp_path / "s", out, *first)[0] == 0
        written = out.read_bytes()
        for other in [c for c in choices if c != first]:
            code, _, err = rmqstore("export", tmp_path / "s", out, *other)
            assert code == 3 and "another choice" in err and out.read_bytes() == written, (first, other)
        with MessageStore.open(tmp_path / "s", **SMALL) as store:
            store.put(first[1], b"more")
        assert rmqstore("export", tmp_path / "s", out, *first)[0] == 0 and out.read_bytes().count(b"\n") == 26


def test_an_export_begun_later_is_not_gone_on_with_from_the_start(tmp_path, rmqstore):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"old")
        until = time.time_ns() // 1_000_000 + 1
        while time.time_ns() // 1_000_000 <= until:
            pass
        store.put("T", b"new")
    out = tmp_path / "out.jsonl"
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        since = list(store.scan("T", 0))[-1].store_timestamp
    assert rmqstore("export", tmp_path / "s", out, "--since", since)[0] == 0
    assert "another choice" in rmqstore("export", tmp_path / "s", out)[2]
    assert rmqstore("export", tmp_path / "s", out, "--since", since)[0] == 0


def test_an_export_says_which_topic_it_did_not_meet(mixed, tmp_path, rmqstore):
    code, out, err = rmqstore("export", mixed, "-t", "T", "-t", "nope", "--json", tmp_path / "o")
    assert code == 1 and "topic nope has no message to" in err and "wrote 61 messages" in out
    code, out, err = rmqstore("export", mixed, "-t", "nope")
    assert (code, out) == (1, "") and "topic nope has no message to" in err


def test_an_export_that_ends_early_says_what_it_leaves(mixed, tmp_path, rmqstore, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = rmqstore("export", mixed, tmp_path / "lines")
    assert code == 3 and f"{tmp_path / 'lines'} has a part of the messages: the same command continues it" in err
    assert (tmp_path / "lines").stat().st_size > 0
    monkeypatch.undo()
    assert rmqstore("export", mixed, tmp_path / "lines")[0] == 0


def test_an_export_into_a_device(mixed, rmqstore):
    code, _, err = rmqstore("export", mixed, "/dev/full")
    assert code == 3 and "No space left on device: /dev/full" in err
    assert rmqstore("export", mixed, "/dev/null")[0] == 0


@pytest.mark.parametrize("there", [b"my notes", b"my notes\n", b'{"topic":"T"}\n', b'{"topic":"T","offset":0,"size":9}\n'])
def test_an_export_leaves_other_files_alone(mixed, tmp_path, rmqstore, there):
    (tmp_path / "notes").write_bytes(there)
    code, _, err = rmqstore("export", mixed, tmp_path / "notes")
    assert code == 3 and "give another name" in err and (tmp_path / "notes").read_bytes() == there


@pytest.mark.untraced       # the commands run in processes of their own
def test_the_commands_killed_by_a_signal(tmp_path):
    """kill -9 of the real processes: export | import, each again until it is through."""
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for i in range(20_000):
            store.put("T", b"%d" % i)
    run = [sys.executable, "-m", "rmq_store"]
    for command in ([*run, "copy", tmp_path / "from", tmp_path / "to", "--progress"],
                    [*run, "export", tmp_path / "from", tmp_path / "lines"],
                    [*run, "import", tmp_path / "to2", tmp_path / "lines"]):
        for delay in (0.3, 0.4, 0.5, None):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
            try:
                _, err = process.communicate(timeout=delay)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL if delay != 0.4 else signal.SIGINT)
                _, err = process.communicate()
        assert process.returncode == 0, err
    assert got(tmp_path / "to", "T") == got(tmp_path / "to2", "T") == [b"%d" % i for i in range(20_000)]
