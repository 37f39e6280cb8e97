"""Unchanged clients in other languages send and consume: rocketmq-client-go v2, Python's rocketmq, Node's ali-ons
(tools/interop/others/)."""
import subprocess
from pathlib import Path

import pytest

from rmq_store import Broker

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "other_clients.sh"
SECONDS = 600           # the first start may fetch packages


@pytest.mark.parametrize("language", ["go", "python", "node"])
def test_a_client_sends_and_consumes(tmp_path: Path, language: str) -> None:
    with Broker.open(tmp_path / "s", profile="test", waitTimeMillsInSendQueue=60_000) as broker:
        broker.store.topic_table.set("Others", readQueueNums=4, writeQueueNums=4)       # ali-ons makes none
        done = subprocess.run([SCRIPT, language, broker.namesrv_address, "Others"], capture_output=True, text=True,
                              timeout=SECONDS, cwd=tmp_path)
        if done.returncode == 77:
            pytest.skip(f"this client cannot run here: {done.stderr.strip()}")
        assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
        lines = done.stdout.splitlines()
        assert sorted(line for line in lines if line.startswith("got ")) == [f"got body-{n} tag key-{n}" for n in range(4)]
        assert len({line for line in lines if line.startswith("sent ")}) == 4
        stored = {(bytes(m.body), m.tags, m.keys) for m in broker.store.scan("Others")}
        assert stored == {(b"body-%d" % n, "tag", f"key-{n}") for n in range(4)}
