"""`rmqstore follow`, and a broker with slaves."""
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import Broker
from tests.replication.pairs import SMALL, fill, log_of, master, same_log, slave
from tests.soon import until

OPTIONS = [f"{name}={value}" for name, value in SMALL.items()]


def test_follow(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with master(tmp_path / "m") as m:
        fill(m, 30)
        command = [sys.executable, "-m", "rmq_store", "follow", m.replication().address, str(tmp_path / "s"), "--json",
                   "--ready-file", str(ready), *(x for option in OPTIONS for x in ("-o", option))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            until(ready.exists, 30_000)
            fill(m, 30, 1)
            end = m.max_log_offset
            until(lambda: [r.offset for r in m.replicas()] == [end], 30_000)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate()
            assert process.returncode == 0
        assert log_of(tmp_path / "s", 0, end) == log_of(tmp_path / "m", 0, end)
    states = [json.loads(line)["state"] for line in out.splitlines()]
    assert states[-1] == "follows"


@pytest.mark.slow
def test_follow_ends_where_the_logs_differ(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, master(tmp_path / "s") as s:
        fill(m, 30, 1)
        fill(s, 20, 2)
    with master(tmp_path / "m") as m:
        command = [sys.executable, "-m", "rmq_store", "follow", m.replication().address, str(tmp_path / "s"),
                   *(x for option in OPTIONS for x in ("-o", option))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "refuses to follow" in done.stdout + done.stderr and "the logs part at or before offset" in done.stdout + done.stderr


def test_a_broker_has_slaves(tmp_path: Path) -> None:
    with Broker.open(tmp_path / "m", listen="127.0.0.1:0", brokerRole="SYNC_MASTER", haListenPort=0, **SMALL) as broker, \
            slave(tmp_path / "s", broker.store) as s:
        until(lambda: any(r.offset >= 0 for r in broker.store.replicas()), 20_000)
        broker.store.put("T", b"x")
        assert s.max_log_offset == broker.store.max_log_offset
        same_log(broker.store, s)
