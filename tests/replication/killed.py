"""A master or a slave in a process of its own, which a test kills: python -m tests.replication.killed ROLE PATH ADDRESS SEED.

A master prints its address, then the body of each message that a put said PUT_OK for. A slave prints its state once it follows.
A `middle` is a slave that has slaves itself; it prints its address once it follows.
"""
import random
import sys
from pathlib import Path

from rmq_store.status import PutStatus
from tests.replication.pairs import master, slave
from tests.soon import until


def main(role: str, path: str, address: str, seed: str) -> None:
    if role in ("slave", "middle"):
        more = {"ha_listen": "127.0.0.1:0"} if role == "middle" else {}
        with slave(Path(path), address, **more) as s:
            until(lambda: s.replication().state == "follows", 60_000)
            print(s.replication().address or "follows", flush=True)
            sys.stdin.read()
        return
    r = random.Random(int(seed))
    wait = {"role": "sync_master", "slave_timeout_ms": 20_000} if role == "sync_master" else {}
    with master(Path(path), ha_listen=address, **wait) as m:
        print(m.replication().address, flush=True)
        sys.stdin.readline()
        n = 0
        while True:
            body = f"{seed}-{n}-".encode() + bytes(r.randrange(600))
            if m.put("T", body, queue_id=n % 3, keys=str(n)).status == PutStatus.PUT_OK:
                print(f"{seed}-{n}-", flush=True)
            n += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
