"""Replication as operators see it: Prometheus, the status page, --watch, and `rmqstore stat`."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_store import Broker, promote
from rmq_store.broker.figures import Figures, line
from rmq_store.broker.page import page
from rmq_store.metrics import text
from tests.replication.pairs import SMALL, caught_up, joined
from tests.replication.test_metadata import copied, leader
from tests.replication.test_slave_broker import slave_broker
from tests.soon import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    more = {"stats_file_interval_ms": 1000}
    with leader(tmp_path / "m", **more) as m, slave_broker(tmp_path / "s", m.namesrv_address, **more) as s:
        joined(m.store)
        m.store.put("T", b"x" * 100)
        caught_up(s.store, m.store)
        until(lambda: [r.lag_bytes for r in m.store.replicas()] == [0], 20_000)
        copied(s.store)
        yield m, s


def samples(store: Any) -> dict[str, float]:
    rows = [row.rpartition(" ") for row in text(store).splitlines() if "repli" in row and not row.startswith("#")]
    return {name.replace(f'path="{store.path}"', "").replace(",}", "}").replace("{,", "{"): float(value) for name, _,
            value in rows}


def test_prometheus(pair: tuple[Broker, Broker]) -> None:
    m, s = pair
    (replica,) = m.store.replicas()
    told = samples(m.store)
    end = m.store.max_log_offset
    assert told['rmq_store_replication_role{role="master",state=""}'] == 1
    assert told[f'rmq_store_replica_offset{{replica="{replica.address}"}}'] == end
    assert told[f'rmq_store_replica_lag_bytes{{replica="{replica.address}"}}'] == 0
    assert told[f'rmq_store_replica_lag_seconds{{replica="{replica.address}"}}'] == 0
    assert told["rmq_store_replication_sent_bytes_total{}"] >= end
    told = samples(s.store)
    assert told['rmq_store_replication_role{role="slave",state="follows"}'] == 1
    assert told["rmq_store_replication_behind_bytes{}"] == 0
    assert told["rmq_store_replication_received_bytes_total{}"] >= end
    assert told["rmq_store_replication_copied_timestamp_seconds{}"] > 1.7e9


def test_the_page_and_the_line(pair: tuple[Broker, Broker]) -> None:
    m, s = pair
    for broker, says, shows in ((m, "replicas 1, 0 B behind", ("Slaves of this master", m.store.replicas()[0].address)),
                                (s, "slave follows, 0 B behind", ("<h2>Slave</h2>", m.store.replication().address))):
        figures = Figures(broker._core)
        moment = figures.look()
        assert line(moment).endswith(says)
        html = page(broker._core, figures, contents=True)
        assert all(text in html for text in shows)


def test_stat(pair: tuple[Broker, Broker], rmqstore: Any) -> None:
    m, s = pair
    for broker in pair:
        assert broker.store._publisher._write()
    (replica,) = m.store.replicas()
    _, out, _ = rmqstore("stat", m.store.path)
    assert f"master: slaves connect to {m.store.replication().address}" in out and replica.address in out
    _, out, _ = rmqstore("stat", s.store.path)
    assert f"slave of {m.store.replication().address}: follows, 0 bytes behind" in out
    assert f"topics, groups and offsets of {m.address}, copied" in out
    _, out, _ = rmqstore("stat", s.store.path, "--json")
    records = {record["kind"]: record for record in map(json.loads, out.splitlines())}
    assert records["role"]["role"] == "slave" and records["live"]["replication"]["state"] == "follows"


def test_stat_of_a_directory_that_was_promoted(tmp_path: Path, rmqstore: Any) -> None:
    with leader(tmp_path / "m") as m, slave_broker(tmp_path / "s", m.namesrv_address) as s:
        joined(m.store)
        m.store.put("T", b"x")
        caught_up(s.store, m.store)
    assert "slave of 127.0.0.1:" in rmqstore("stat", tmp_path / "s")[1]
    promote(tmp_path / "s", **SMALL)
    assert "promoted to master at" in rmqstore("stat", tmp_path / "s")[1]
    (tmp_path / "s/config/replica.json").write_text("{")
    _, out, err = rmqstore("stat", tmp_path / "s")
    assert "replica.json" in err and "min_log_offset" in out
