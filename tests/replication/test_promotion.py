"""promote(): what it refuses, what it changes, and that a call which dies anywhere is finished by the next one."""
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rmq_store import Broker, MessageStore, promote, restore
from rmq_store.base.io._io import ProbeIo
from rmq_store.config.upstream_json import parse_json
from rmq_store.errors import ArgumentIllegal, CorruptionError, MasterAlive, NotASlave, RmqStoreError, StoreLocked
from rmq_store.replication.mark import read_mark
from rmq_store.services.integrity.repair import repair
from tests.replication.pairs import SMALL, caught_up, fill, joined, master, slave

DELAYS = {"delay_levels": "1h"}


@pytest.fixture
def left(tmp_path: Path) -> tuple[Path, str]:
    """The directory of a slave whose master has gone, and the master's address. A group and a delay level are ahead of the
    log."""
    with master(tmp_path / "m", **DELAYS) as m:
        address = m.replication().address
        with slave(tmp_path / "s", m, **DELAYS) as s:
            joined(m)
            fill(m, 20)
            m.put("D", b"late", delay_level=1)
            caught_up(s, m)
            s.offsets.commit("G", "T0", 0, 10_000)
            s.offsets.commit("G", "T1", 1, 2)
    (tmp_path / "s/config/delayOffset.json").write_text('{"offsetTable":{1:7}}')
    return tmp_path / "s", address


def config_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((path / "config").iterdir()) if p.suffix != ".tmp"}


def promoted_well(path: Path, role: str = "master") -> None:
    with MessageStore.open(path, **SMALL, **DELAYS) as p:
        assert read_mark(str(path)).role == role
        end = p.max_offset("T0", 0)
        assert p.offsets.query("G", "T0", 0) == end < 10_000
        assert p.offsets.query("G", "T1", 1) == 2
        assert p.delay_levels()[0].offset == 1 == p.max_offset("SCHEDULE_TOPIC_XXXX", 0)
        assert p.put("T0", b"goes on").queue_offset == end
        assert [bytes(m.body) for m in p.get("T0", 0, p.offsets.query("G", "T0", 0), wait=10)] == [b"goes on"]


def test_a_slave_becomes_a_master(left: tuple[Path, str], caplog: pytest.LogCaptureFixture) -> None:
    path, address = left
    before = config_of(path)
    done = promote(path, to="sync_master", **SMALL, **DELAYS)
    assert (done.role, done.master) == ("sync_master", address)
    (moved,) = done.moved
    assert moved[:4] == ("G", "T0", 0, 10_000)
    kept = {Path(p).name.removeprefix("promotion-"): Path(p).read_bytes() for p in done.kept}
    assert kept == {name: before[name] for name in kept} and {"replica.json", "consumerOffset.json",
                                                              "delayOffset.json"} <= kept.keys()
    promoted_well(path, "sync_master")
    assert "promoted to sync_master and opens as master" in caplog.text
    for to in ("sync_master", None):
        with pytest.raises(NotASlave, match="promoted to sync_master before; to change its role"):
            promote(path, to=to, **SMALL, **DELAYS)
    mark = read_mark(str(path))
    again = promote(path, to="master", **SMALL, **DELAYS)       # its own messages are not the old master's
    assert (again.role, again.was, again.moved, len(again.kept)) == ("master", "sync_master", [], 1)
    now = read_mark(str(path))
    assert mark is not None and now == mark._replace(role="master", since_ms=now.since_ms)


def test_what_is_refused(left: tuple[Path, str], tmp_path: Path) -> None:
    path, address = left
    before = config_of(path)
    with pytest.raises(NotASlave, match=r"has no config/replica\.json"):
        promote(tmp_path / "m", **SMALL)
    with pytest.raises(FileNotFoundError):
        promote(tmp_path / "none", **SMALL)
    with pytest.raises(ValueError, match="give 'master' or 'sync_master'"):
        promote(path, to="slave", **SMALL)
    with master(tmp_path / "m", ha_listen=address, **DELAYS), pytest.raises(MasterAlive, match=address):
        promote(path, **SMALL, **DELAYS)
    with slave(path, address, **DELAYS), pytest.raises(StoreLocked) as locked:
        promote(path, **SMALL, **DELAYS)
    assert "rmqstore follow" in locked.value.__notes__[0]
    assert config_of(path) == before
    with master(tmp_path / "m", ha_listen=address, **DELAYS):
        promote(path, force=True, **SMALL, **DELAYS)
    promoted_well(path)


def test_an_old_configuration_ends_no_promotion(left: tuple[Path, str], tmp_path: Path) -> None:
    """Neither that of a store nor that of a broker, whether it names the master or asks a name server; nothing is changed. A
    backup of the promoted store can become its slave, and it itself can once somebody has said so."""
    path, address = left
    promote(path, to="sync_master", **SMALL, **DELAYS)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}
    broker: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, **SMALL, **DELAYS}
    with pytest.raises(NotASlave, match=r"brokerRole=SYNC_MASTER.*move .*replica\.json away"):
        slave(path, address, **DELAYS)
    with pytest.raises(NotASlave):
        Broker.open(path, haMasterAddress=address, **broker)
    with pytest.raises(NotASlave):
        Broker.open(path, namesrv="127.0.0.1:1", **broker)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"} == before
    promote(path, to="master", **SMALL, **DELAYS)
    with master(path, **DELAYS) as p:
        p.backup(tmp_path / "backups")
        restore(tmp_path / "backups", tmp_path / "restored")
        with slave(tmp_path / "restored", p, **DELAYS) as s:
            p.put("T0", b"new")
            caught_up(s, p)
    (path / "config/replica.json").unlink()
    with slave(path, address, **DELAYS) as s:       # a slave's it becomes when its messages are compared with its master's
        assert s.replication().state == "waits" and read_mark(str(path)) is None


def test_the_broker_of_the_master_is_asked_too(tmp_path: Path) -> None:
    with Broker.open(tmp_path / "b", **SMALL) as broker:
        with slave(tmp_path / "s", "127.0.0.1:1", ha_master_broker=broker.address):
            pass
        with pytest.raises(MasterAlive, match=broker.address):
            promote(tmp_path / "s", **SMALL)


def test_what_names_no_queue_keeps_nobody_from_promoting(left: tuple[Path, str]) -> None:
    """A slave copies what its master has, and a master's files may hold anything."""
    path, _ = left
    config = path / "config"
    odd = '"T0@G":{-1:5,99999999999:5,0:10000},"T0":{0:500},"@":{0:500},"T0@G@H":{0:500},"T1@G":{1:2}'
    (config / "consumerOffset.json").write_text('{"offsetTable":{' + odd + "}}")
    (config / "delayOffset.json").write_text('{"offsetTable":{-5:1,0:2,1:7,2:-3,99999999999:4}}')
    done = promote(path, **SMALL, **DELAYS)
    assert [found[:4] for found in done.moved] == [("G", "T0", 0, 10_000)]
    found = parse_json((config / "consumerOffset.json").read_text())["offsetTable"]
    assert found["T0@G"]["-1"] == found["T0@G"]["99999999999"] == 5
    assert parse_json((config / "delayOffset.json").read_text())["offsetTable"] == {
        "-5": 1, "0": 2, "1": 1, "2": 0, "99999999999": 4}
    promoted_well(path)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_promotion_dies_anywhere_twice(left: tuple[Path, str], tmp_path: Path, step: int) -> None:
    """At each call that changes something, then at a random one of the call that comes after it."""
    path, _ = left
    r = random.Random(step)
    roles = set()
    n = 1
    while True:
        copy = tmp_path / f"copy{n}"
        shutil.copytree(path, copy)
        frozen = died(copy, n)
        if not frozen:
            break
        roles.add(read_mark(str(copy)).role)
        died(copy, r.randrange(1, 60))
        if read_mark(str(copy)).role == "slave":
            promote(copy, **SMALL, **DELAYS)
        promoted_well(copy)
        shutil.rmtree(copy)
        n += step
    assert n > 20
    assert roles == {"slave", "master"} or step > 1


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_change_of_the_role_dies_anywhere_twice(left: tuple[Path, str], tmp_path: Path, step: int) -> None:
    """The directory has one of the two roles, both are a master's, and no message of its own is lost."""
    path, _ = left
    promote(path, to="sync_master", **SMALL, **DELAYS)
    before = read_mark(str(path))
    with MessageStore.open(path, ha_listen="127.0.0.1:0", **SMALL, **DELAYS) as store:
        own = store.put("T0", b"its own", wait=False)
    assert own.queue_offset is not None
    r, roles, n = random.Random(step), set(), 1
    while True:
        copy = tmp_path / f"copy{n}"
        shutil.copytree(path, copy)
        frozen = died(copy, n, to="master")
        if not frozen:
            break
        roles.add(read_mark(str(copy)).role)
        died(copy, r.randrange(1, 40), to="master")
        if read_mark(str(copy)).role != "master":
            promote(copy, to="master", **SMALL, **DELAYS)
        now = read_mark(str(copy))
        assert now == before._replace(role="master", since_ms=now.since_ms)
        with MessageStore.open(copy, **SMALL, **DELAYS) as store:
            assert [bytes(m.body) for m in store.get("T0", 0, own.queue_offset, wait=10)] == [b"its own"]
        shutil.rmtree(copy)
        n += step
    assert n > 10
    assert roles == {"sync_master", "master"} or step > 1


def died(path: Path, n: int, **how: Any) -> bool:
    """A promotion that dies at the n-th call that changes something. Whether there were so many."""
    probe = ProbeIo()
    probe.freeze("mutate|sync", n)
    try:
        promote(path, _io=probe, **how, **SMALL, **DELAYS)
    except (RmqStoreError, OSError):        # what it had written is not there, or it was promoted before
        pass
    return probe.frozen


@pytest.mark.parametrize("role", [{"role": "sync_master"}, {"brokerRole": "SYNC_MASTER"}, {"role": "master"}])
def test_a_new_role_is_named_in_to(left: tuple[Path, str], role: dict[str, Any]) -> None:
    before = config_of(left[0])
    with pytest.raises(ArgumentIllegal, match="name the new role in to"):
        promote(left[0], force=True, **SMALL, **role)
    assert config_of(left[0]) == before
    assert promote(left[0], force=True, to="sync_master", role="slave", **SMALL).role == "sync_master"


@pytest.mark.parametrize(("text", "found"), [
    ('{"role":"slave"}', '{"role":"slave"}'), ("[]", "[]"), ("{", "no JSON"), ("[" * 9000, "no JSON"), ("\0", "NUL"),
    ('{"role":["slave"],"haMasterAddress":"","brokerAddress":"","since":1}', '["slave"]'),
    ('{"role":"slave","haMasterAddress":"","brokerAddress":"","since":true}', "true")])
def test_a_mark_that_says_no_role_is_named_with_what_is_there(left: tuple[Path, str], text: str, found: str) -> None:
    path, _ = left
    (path / "config/replica.json").write_text(text)
    with pytest.raises(CorruptionError, match="expected the fields role, haMasterAddress, brokerAddress and since") as caught:
        promote(path, **SMALL, **DELAYS)
    assert found in str(caught.value.found) and "move the file away" in str(caught.value)
    assert (path / "config/replica.json").read_text() == text


def test_the_command(left: tuple[Path, str], rmqstore: Any, tmp_path: Path) -> None:
    path, address = left
    options = [word for name, value in {**SMALL, **DELAYS}.items() for word in ("-o", f"{name}={value}")]
    code, out, err = rmqstore("promote", str(path), *options)
    assert code == 0, err
    assert f"was a slave of master {address}; now it is a master (ASYNC_MASTER)" in out
    assert "Group G had read T0/0 up to offset 10000" in out
    code, out, err = rmqstore("promote", str(path), *options)
    assert (code, "promoted to master before" in err) == (3, True)
    code, out, _ = rmqstore("promote", str(path), "--to", "sync_master", "--json", *options)
    assert (json.loads(out)["role"], json.loads(out)["was"]) == ("sync_master", "master")
    assert "promoted to sync_master before" in rmqstore("promote", str(path), *options)[2]
    out = rmqstore("promote", str(path), "--to", "ASYNC_MASTER", *options)[1]
    assert "was promoted to sync_master before; now it is a master" in out and "is missing" not in out
    assert rmqstore("promote", str(tmp_path / "none"))[0] == 3


def test_a_slave_is_backed_up_and_repaired(left: tuple[Path, str], tmp_path: Path) -> None:
    """It stays a slave: what was restored is promoted before it takes messages."""
    path, address = left
    with slave(path, address, **DELAYS) as s:
        s.backup(tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "restored")
    assert read_mark(str(tmp_path / "restored")) == read_mark(str(path))
    shutil.rmtree(path / "consumequeue")
    result = repair(path, dry_run=False, open_store=MessageStore.open, **SMALL, **DELAYS)
    assert result.steps and not result.left
    assert read_mark(str(path)).role == "slave"
    for directory in (path, tmp_path / "restored"):
        promote(directory, **SMALL, **DELAYS)
        promoted_well(directory)


def test_a_slave_says_since_when(tmp_path: Path) -> None:
    """The mark stays as it is while the master is the same."""
    before = int(time.time() * 1000)
    for _ in range(2):
        with slave(tmp_path / "s", "127.0.0.1:1"):
            mark = read_mark(str(tmp_path / "s"))
    assert (mark.role, mark.master, mark.broker) == ("slave", "127.0.0.1:1", "")
    assert before <= mark.since_ms <= int(time.time() * 1000)
    first = mark.since_ms
    with slave(tmp_path / "s", "127.0.0.1:2"):
        assert read_mark(str(tmp_path / "s"))[1::2] == ("127.0.0.1:2", first)
