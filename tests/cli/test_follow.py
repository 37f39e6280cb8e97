"""tail and get --wait beside a running writer, put --delay-level, and what stat tells of delay levels."""
import json
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.cli.main import main

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}
OPTIONS = [part for name, value in SMALL.items() for part in ("-o", f"{name}={value}")]


@pytest.fixture
def writer(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"old")
        assert store.wait_dispatched(30)
        yield store


def later(store, *puts):
    """Puts from another thread, once the command under test has begun to look."""
    def put():
        for body in puts:
            store.put("T", body)
            store.wait_dispatched(30)

    timer = threading.Timer(0.3, put)
    timer.start()
    return timer


def test_tail_shows_what_comes(writer, tmp_path, capsys):
    timer = later(writer, b"one", b"two")
    assert main(["tail", str(tmp_path / "s"), "-t", "T", "-c", "2", "--json", *OPTIONS]) == 0
    timer.join()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["queue_offset"] for line in lines] == [1, 2]
    assert main(["tail", str(tmp_path / "s"), "-t", "T", "--offset=-1", "--for", "0", "--json", *OPTIONS]) == 0
    assert [json.loads(line)["queue_offset"] for line in capsys.readouterr().out.splitlines()] == [2]


def test_get_waits_for_the_first_one(writer, tmp_path, capsys):
    timer = later(writer, b"one")
    assert main(["get", str(tmp_path / "s"), "-t", "T", "-i", "1", "--wait", "60", "--json", *OPTIONS]) == 0
    timer.join()
    assert [json.loads(line)["queue_offset"] for line in capsys.readouterr().out.splitlines()] == [1]
    assert main(["get", str(tmp_path / "s"), "-t", "T", "-i", "2", "--wait", "0", *OPTIONS]) == 1


@pytest.mark.parametrize("bad", ["nan", "inf", "-1", "soon"])
@pytest.mark.parametrize("command", [("tail", "--for"), ("get", "--wait")])
def test_what_is_no_time_to_wait(writer, rmqstore, command, bad):
    name, option = command
    code, out, err = rmqstore(name, writer.path, "-t", "T", f"{option}={bad}", *OPTIONS)
    assert (code, out) == (64, "") and f"{bad!r} is not a waiting time: give seconds, 0 to " in err


@pytest.mark.parametrize(("arguments", "words"), [
    (("get", "-q", "-1"), "'-1': give a whole number from 0 to 2147483647"), (("get", "-q", str(1 << 31)), "from 0 to"),
    (("tail", "-q", "x"), "'x': give a whole number from 0"), (("get", "-i", str(1 << 63)), "-9223372036854775808 to 9223"),
    (("tail", "-c", "0"), "'0': give a whole number from 1"), (("get", "-c", "0"), "'0': give a whole number from 1"),
    (("query", "-k", "k", "-m", "0"), "from 1 to"), (("query", "--time", "9" * 20), "is not a time: give ms"),
    (("query", "--offset", str(1 << 64)), "-9223372036854775808 to"),
    (("offsets commit", "-g", "G", "-q", str(1 << 40), "-i", "0"), "from 0 to 2147483647")])
def test_what_is_no_queue_and_no_offset(writer, rmqstore, arguments, words):
    command, *rest = arguments
    code, out, err = rmqstore(*command.split(), writer.path, "-t", "T", *rest, *OPTIONS)
    assert (code, out) == (64, "") and words in err


def test_delay_levels_from_put_to_stat(tmp_path, capsys):
    root = str(tmp_path / "s")
    (tmp_path / "lines").write_text("a\nb\n")
    put = ["put", root, str(tmp_path / "lines"), "-t", "T", "--delay-level", "18", *OPTIONS]
    assert main(put) == 0
    capsys.readouterr()
    assert main(["stat", root, "--json", *OPTIONS]) == 0
    (level,) = [x for x in map(json.loads, capsys.readouterr().out.splitlines()) if x.get("kind") == "delay_level"]
    assert (level["level"], level["waiting"], level["offset"]) == (18, 2, 0)
    assert main(["stat", root, *OPTIONS]) == 0
    assert "delay level" in capsys.readouterr().out
