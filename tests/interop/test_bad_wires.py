"""Pairs with real RocketMQ stores behind a wire as bad as wires are, while either side is killed at random moments and comes
back. The end compared byte for byte: what a killed process had written is there, so neither log may differ from the other."""
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import jvm
from tests.interop.test_replication import FILES, LOOKS, SEGMENT, free_port, java_end, log_bytes
from tests.replication.pairs import fill, master, slave
from tests.replication.proxy import Wire
from tests.replication.test_kills import Other
from tests.soon import until

pytestmark = pytest.mark.slow
OFTEN = "haSendHeartbeatInterval=200"       # a real slave of 4.9 says its first word when the second one would be due
ROUNDS = 5
SEEDS = [1, 2, 3]
VERSIONS = ["4.9.8", "5.3.3"]


class Real:
    """A real store in a JVM of its own, which is killed and comes back."""

    def __init__(self, version: str, path: Path, *options: str) -> None:
        self.version, self.path, self._options = version, path, options
        self._begin()

    def _begin(self) -> None:
        self.java = jvm.JavaStore(self.version, self.path.with_suffix(".log"))
        try:
            self.java.wait_ready()
        except jvm.NotHere as missing:
            pytest.skip(f"the real RocketMQ store cannot run here: {missing}")
        self.java.ask("open", self.path, *FILES, *self._options)

    def again(self, follows: str = "") -> None:
        self.java.kill()
        self._begin()
        if follows:
            self.java.ask("follow", self.path, follows)

    def end(self) -> int:
        return int(self.java.ask("end", self.path)["end"])

    def first(self) -> int:
        return min(int(p.name) for p in (self.path / "commitlog").iterdir())


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Callable[..., Real]]:
    made: list[Real] = []

    def begun(version: str, *options: str) -> Real:
        made.append(Real(version, tmp_path / "real", *options))
        return made[-1]

    yield begun
    for store in made:
        store.java.kill()


def a_moment(r: random.Random) -> None:
    """In which the wire lives its life, and after which somebody is killed."""
    threading.Event().wait(r.random() / 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_slave_of_our_master(version: str, seed: int, tmp_path: Path, real: Callable[..., Real]) -> None:
    r, mine, address = random.Random(seed), tmp_path / "m", f"127.0.0.1:{free_port()}"
    leader = Other("master", mine, address, 0)
    assert leader.line() == address
    theirs = real(version, "brokerRole=SLAVE", OFTEN)
    with Wire(address, seed) as wire:
        theirs.java.ask("follow", theirs.path, wire.address)
        has = 0
        for n in range(1, ROUNDS + 1):
            leader.go()
            for _ in range(r.randrange(1000, 2000)):        # more than a page of the pipe, where it waits for its reader
                leader.line()
            until(lambda has=has: theirs.end() > has, LOOKS)        # a real slave connects again after 5 s
            a_moment(r)
            has = theirs.end()
            killed = r.choice(("master", "slave", "both", "nobody"))
            if killed in ("master", "both"):
                leader.kill()
                leader = Other("master", mine, address, n)
                assert leader.line() == address
            if killed in ("slave", "both"):
                theirs.again(wire.address)
        leader.kill()
        with master(mine, ha_listen=address) as m:
            fill(m, 20, seed)
            until(lambda: wire.cuts + wire.lies > 0, LOOKS)
            wire.mend()
            until(lambda: java_end(theirs.java, theirs.path) == m.max_log_offset, LOOKS)
            end = m.max_log_offset
    theirs.java.ask("close", theirs.path)
    begin = theirs.first()
    assert end - begin > SEGMENT
    assert log_bytes(mine, begin, end) == log_bytes(theirs.path, begin, end)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_our_slave_of_a_real_master(version: str, seed: int, tmp_path: Path, real: Callable[..., Real]) -> None:
    r, mine, port = random.Random(seed), tmp_path / "s", free_port()
    theirs = real(version, f"haListenPort={port}", OFTEN)
    theirs.java.ask("append", theirs.path, tmp_path / "puts0", 20, 0)
    with Wire(f"127.0.0.1:{port}", seed) as wire:
        follower = Other("slave", mine, wire.address, 0)
        for n in range(1, ROUNDS + 1):
            theirs.java.send("append", theirs.path, tmp_path / f"puts{n}", r.randrange(20, 200), n)
            killed = r.choice(("master", "slave", "both", "nobody"))
            if killed in ("slave", "nobody"):
                theirs.java.answer()
            a_moment(r)
            if killed in ("master", "both"):
                theirs.again()
            if killed in ("slave", "both"):
                follower.kill()
                follower = Other("slave", mine, wire.address, n)
        follower.kill()
        theirs.java.ask("append", theirs.path, tmp_path / "puts9", 100, 9)
        end = theirs.end()
        with slave(mine, wire.address) as s:
            until(lambda: wire.cuts + wire.lies > 0, LOOKS)
            wire.mend()
            until(lambda: s.max_log_offset == end, LOOKS)
            assert s.wait_dispatched(30)
            begin = s.min_log_offset
    theirs.java.ask("close", theirs.path)
    assert end - begin > SEGMENT
    assert log_bytes(theirs.path, begin, end) == log_bytes(mine, begin, end)
