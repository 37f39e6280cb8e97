"""Pairs of this library and real RocketMQ stores: the real slave of our master, and our slave of the real master.

Each pair ends with logs that are equal byte for byte, after either side has gone and come back.
"""
import json
import socket
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import jvm, ours
from tests.replication.pairs import SMALL, fill, master, same_log, slave
from tests.soon import until

pytestmark = pytest.mark.slow
SEGMENT = SMALL["segment_size_bytes"]
FILES = jvm.settings({"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 64,
                      "maxIndexNum": 2000, "maxMessageSize": 40000})
LOOKS = 60_000      # a real slave of 4.9 says its first word five seconds after it has connected


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def log_bytes(path: Path, begin: int, end: int) -> bytes:
    first = begin // SEGMENT * SEGMENT
    files = [path / "commitlog" / f"{at:020d}" for at in range(first, end, SEGMENT)]
    return b"".join(f.read_bytes() for f in files)[begin - first:end - first]


def java_end(j: jvm.JavaStore, path: Path) -> int:
    answer = j.ask("end", path)
    return answer["end"] if answer["behind"] <= 0 else -1


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_real_slave_of_our_master(version: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    (j,) = (j for j in java if j.version == version)
    mine, theirs = tmp_path / "m", tmp_path / "s"
    with master(mine, compat=j.compat) as m:
        fill(m, 100)            # one file is not full yet: the slave gets all of it
        address = m.replication().address
        j.ask("open", theirs, *FILES, "brokerRole=SLAVE")
        j.ask("follow", theirs, address)
        until(lambda: java_end(j, theirs) == m.max_log_offset, LOOKS)
        begin = min(int(p.name) for p in (theirs / "commitlog").iterdir())
        for seed in range(3):
            fill(m, 150, seed)
            until(lambda: java_end(j, theirs) == m.max_log_offset, LOOKS)
        until(lambda: [r.offset for r in m.replicas()] == [m.max_log_offset], LOOKS)
        end = m.max_log_offset
    with master(mine, compat=j.compat, ha_listen=address) as m:     # gone and back, with more
        fill(m, 60, 9)
        until(lambda: java_end(j, theirs) == m.max_log_offset, LOOKS)
        assert m.max_log_offset > end
        end = m.max_log_offset
        j.ask("close", theirs)
        fill(m, 100, 10)
        j.ask("open", theirs, *FILES, "brokerRole=SLAVE")
        j.ask("follow", theirs, address)
        until(lambda: java_end(j, theirs) == m.max_log_offset, LOOKS)
        end = m.max_log_offset
    assert end - begin > 3 * SEGMENT
    assert log_bytes(mine, begin, end) == log_bytes(theirs, begin, end)
    j.ask("close", theirs)
    out = tmp_path / "out.jsonl"
    assert j.ask("verify", theirs, out, tmp_path, *FILES)["rc"] == 0
    found = ours.messages(out.read_text().splitlines())
    with MessageStore.open(mine, readonly=True, **{k: v for k, v in SMALL.items() if not k.startswith("ha_")}) as m:
        offsets = [x.offset for topic in m.topics() for x in m.scan(topic) if x.offset >= begin]
    assert sorted(offsets) == sorted(found)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_our_slave_of_a_real_master(version: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    (j,) = (j for j in java if j.version == version)
    theirs, mine = tmp_path / "m", tmp_path / "s"
    port = free_port()
    j.ask("open", theirs, *FILES, f"haListenPort={port}")
    j.ask("append", theirs, tmp_path / "puts0", 60, 1)
    puts = [json.loads(line) for line in (tmp_path / "puts0").read_text().splitlines()]
    address = f"127.0.0.1:{port}"
    with slave(mine, address, compat=j.compat) as s:
        until(lambda: s.max_log_offset == j.ask("end", theirs)["end"], LOOKS)
        for seed in range(2, 5):
            j.ask("append", theirs, tmp_path / f"puts{seed}", 150, seed)
            puts += [json.loads(line) for line in (tmp_path / f"puts{seed}").read_text().splitlines()]
            until(lambda: s.max_log_offset == j.ask("end", theirs)["end"], LOOKS)
    j.ask("append", theirs, tmp_path / "puts9", 150, 9)
    puts += [json.loads(line) for line in (tmp_path / "puts9").read_text().splitlines()]
    with slave(mine, address, compat=j.compat) as s:
        until(lambda: s.max_log_offset == j.ask("end", theirs)["end"], LOOKS)
        j.ask("close", theirs)
        until(lambda: s.replication().state == "waits", LOOKS)
        j.ask("open", theirs, *FILES, f"haListenPort={port}")
        j.ask("append", theirs, tmp_path / "puts10", 50, 10)
        puts += [json.loads(line) for line in (tmp_path / "puts10").read_text().splitlines()]
        end = j.ask("end", theirs)["end"]
        until(lambda: s.max_log_offset == end, LOOKS)
        assert s.wait_dispatched(30)
        begin = s.min_log_offset
        assert end - begin > 2 * SEGMENT
        assert log_bytes(theirs, begin, end) == log_bytes(mine, begin, end)
        for put in puts:
            if put["queueOffset"] >= s.min_offset(put["topic"], put["queueId"]):
                (message,) = s.get(put["topic"], put["queueId"], put["queueOffset"], 1)
                assert bytes(message.body).hex() == put["body"]
    j.ask("close", theirs)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_a_real_slave_of_our_slave_of_a_real_master(version: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    (j,) = (j for j in java if j.version == version)
    first, mine, last, port = tmp_path / "a", tmp_path / "b", tmp_path / "c", free_port()
    j.ask("open", first, *FILES, f"haListenPort={port}")
    j.ask("append", first, tmp_path / "puts0", 60, 1)
    with slave(mine, f"127.0.0.1:{port}", compat=j.compat, ha_listen="127.0.0.1:0") as s:
        until(lambda: s.max_log_offset == j.ask("end", first)["end"], LOOKS)
        j.ask("open", last, *FILES, "brokerRole=SLAVE")
        j.ask("follow", last, s.replication().address)
        until(lambda: java_end(j, last) == s.max_log_offset, LOOKS)
        for seed in range(2, 5):
            j.ask("append", first, tmp_path / f"puts{seed}", 150, seed)
            end = j.ask("end", first)["end"]
            until(lambda end=end: java_end(j, last) == end, LOOKS)
        begin = min(int(p.name) for p in (last / "commitlog").iterdir())
        assert end - begin > 2 * SEGMENT
        assert log_bytes(first, begin, end) == log_bytes(mine, begin, end) == log_bytes(last, begin, end)
    j.ask("close", last)
    j.ask("close", first)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_our_slave_of_a_real_slave_of_our_master(version: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    (j,) = (j for j in java if j.version == version)
    theirs, port = tmp_path / "b", free_port()
    with master(tmp_path / "a", compat=j.compat) as m:
        fill(m, 100)
        j.ask("open", theirs, *FILES, "brokerRole=SLAVE", f"haListenPort={port}")
        j.ask("follow", theirs, m.replication().address)
        until(lambda: java_end(j, theirs) == m.max_log_offset, LOOKS)
        with slave(tmp_path / "c", f"127.0.0.1:{port}", compat=j.compat) as s:
            until(lambda: s.max_log_offset == m.max_log_offset, LOOKS)
            for seed in range(3):
                fill(m, 150, seed)
                until(lambda: s.max_log_offset == m.max_log_offset, LOOKS)
            same_log(m, s)
    j.ask("close", theirs)
