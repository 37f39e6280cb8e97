"""SIGTERM ends a broker and its slave whose disk is full, while dispatch stands and all workers are busy. Needs root."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.broker.peer import Peer
from tests.soon import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]
SEND = {"producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
        "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0", "unitMode": "false"}
DELETE_TOPIC, CONSUME_STATS, TOPIC_STATS = 215, 208, 202
WORKERS = 8
STORED = (0, 10, 11, 12)        # perhaps not on the device, or with the slave, in time
CLOSE_S = 5         # close_timeout_ms and slave_timeout_ms, of which an end may take both
SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 64, "message_size_max_bytes": 4096,
         "index_slots": 100, "index_entries_max": 400, "disk_full_pct": 100,
         "close_timeout_ms": CLOSE_S * 1000, "timer_wheel_enable": True}


def fill(place):
    with open(place / "ballast", "ab", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\1" * size) == size:
                    pass


@contextlib.contextmanager
def small(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(place)]).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def served(tmp_path, store, **more):
    ready = tmp_path / f"{store.name}.json"
    options = [f"-o{name}={value}" for name, value in {**SMALL, **more}.items()]
    with open(tmp_path / f"{store.name}.err", "wb") as err:
        process = subprocess.Popen([sys.executable, "-m", "rmq_store", "serve", store, "--profile", "test", "--listen",
                                    "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--ready-file", ready, *options],
                                   stdout=err, stderr=err)
    try:
        until(lambda: ready.exists() or process.poll() is not None, looks=60_000)
        yield process, json.loads(ready.read_text())
    finally:
        process.kill()
        process.wait()


def seconds_to_end(process):
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    return time.monotonic() - begun


@pytest.mark.parametrize("options", [{"write_path": "mmap"}, {"write_path": "pool", "flush_mode": "sync"}],
                         ids=["mmap", "pool-sync"])
def test_sigterm_ends_a_broker_with_a_full_disk(tmp_path, options):
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(small(tmp_path))
        master, ready = stack.enter_context(served(tmp_path, place / "m", role="master", ha_listen="127.0.0.1:0", **options))
        follows = {"role": "slave", "brokerId": 1, "ha_master": ready["ha"]}
        slave, _ = stack.enter_context(served(tmp_path, place / "s", **follows, **options))
        client = stack.enter_context(Peer(ready["listen"]))

        def send(topic, properties=""):
            return client.ask(10, b"x" * 1000, topic=topic, properties=properties, **SEND).code

        for n in range(2 * WORKERS):
            assert send(f"T{n}", f"KEYS\x01k{n}\x02") in STORED
        fill(place)
        for n in range(20):             # a new queue for each: dispatch stands with the first
            send(f"T{n}", "DELAY\x0118\x02" if n % 5 == 0 else f"TIMER_DELAY_SEC\x0130\x02KEYS\x01k{n}\x02")
        until(lambda: send("T1", "KEYS\x01k\x02") not in STORED, looks=2000)      # nor has the log room
        workers = [stack.enter_context(Peer(ready["listen"])) for _ in range(2 * WORKERS)]
        for n, peer in enumerate(workers):
            peer.send(DELETE_TOPIC, topic=f"T{n}")
            peer.send(TOPIC_STATS, topic=f"T{n}")
            peer.send(CONSUME_STATS, consumerGroup="g", topic=f"T{n}")
        workers[0].answer(1)            # the first deletion: the others are under way, or wait
        for process in (slave, master):
            took = seconds_to_end(process)
            assert took < 3 * CLOSE_S + 10, (took, (tmp_path / "m.err").read_text()[-2000:])
        os.unlink(place / "ballast")
        for name in ("m", "s"):
            done = subprocess.run([sys.executable, "-m", "rmq_store", "verify", place / name], capture_output=True, text=True,
                                  timeout=120)
            assert done.returncode in (0, 1), done.stderr
