"""A device that fails, fills up or does not answer while sends come through the network: what they are answered, and that pulls
continue. No send is answered with SUCCESS that is not as durable as the flush mode says."""
import errno

import pytest

from rmq_store import Broker
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec._codec import decode_record
from rmq_store.errors import DurabilityError
from rmq_store.remoting.frame import Frame, encode
from tests.broker.peer import Peer
from tests.soon import until

SYNCS = "msync|fdatasync|ring_sync"
NO_FILE, BUSY, TIMEOUT, NOT_AVAILABLE = 1, 2, 10, 14     # NO_FILE: CREATE_MAPPED_FILE_FAILED, as a Java broker answers
SEND = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": ""}


@pytest.fixture
def serving(tmp_path):
    """serving(**options) -> (broker, probe) over a store whose calls may fail."""
    opened = []

    def make(**options):
        probe = ProbeIo()
        options = {"profile": "test", "namesrv_listen": None, "segment_prezero": "off", "close_timeout_ms": 50,
                   "waitTimeMillsInSendQueue": 60_000} | options        # a busy machine is no fault
        opened.append((Broker.open(tmp_path / str(len(opened)), _io=probe, **options), probe))
        return opened[-1]

    yield make
    for broker, probe in opened:
        probe.clear()
        probe.release()
        try:
            broker.close()
        except DurabilityError:
            pass


def send_many(peer, count, body=b"x" * 100):
    """Pipelined. The numbers of the requests."""
    numbers = list(range(1000, 1000 + count))
    peer.sock.sendall(b"".join(encode(Frame(310, number, SEND, body)) for number in numbers))
    return numbers


def pulled(peer, offset=0):
    answer = peer.pull(offset=offset, bits=4, subscription="*")
    return answer.code, bytes(decode_record(answer.body).body) if answer.body else b""


@pytest.mark.parametrize(("write_path", "flush_backend"), [("mmap", "msync"), ("pool", "fdatasync")])
def test_a_failed_sync_is_never_answered_with_success(serving, write_path, flush_backend):
    broker, probe = serving(flush_mode="sync", write_path=write_path, flush_backend=flush_backend)
    peers = [Peer(broker.address) for _ in range(4)]
    assert peers[0].put(body=b"durable").code == 0 and broker.store.wait_dispatched(10)
    probe.hold(SYNCS, path="/commitlog/")
    probe.fail(SYNCS, nth=1, errno=errno.EIO, path="/commitlog/")
    numbers = [send_many(peer, 20) for peer in peers]
    probe.wait_held()
    probe.release()
    for peer, some in zip(peers, numbers, strict=True):
        assert {peer.answer(number).code for number in some} == {NOT_AVAILABLE}
    for peer in peers:              # those that come later
        assert peer.put().code == NOT_AVAILABLE
        assert peer.put(properties={"DELAY": "1"}).code == NOT_AVAILABLE
        assert pulled(peer) == (0, b"durable")
    assert broker.store.stats()["errno"] == errno.EIO
    for peer in peers:
        peer.sock.close()


def test_a_write_that_fails_refuses_what_comes_later(serving):
    broker, probe = serving(write_path="pool", flush_backend="fdatasync", commit_interval_max_ms=0)
    with Peer(broker.address) as peer:
        assert peer.put(body=b"kept").code == 0
        assert broker.store.wait_dispatched(10)
        probe.fail("pwrite", nth=1, errno=errno.EIO, path="/commitlog/", sticky=True)
        codes = [peer.put().code]
        while codes[-1] == 0:       # asynchronous: the first ones did not wait for the write
            codes.append(peer.put().code)
        assert codes[-1] == NOT_AVAILABLE
        assert pulled(peer) == (0, b"kept")


def test_a_write_that_fails_for_a_held_pull_refuses_what_comes_later(serving):
    """The network thread commits for the pull, and meets the error itself."""
    broker, probe = serving(write_path="pool", flush_backend="fdatasync", commit_interval_max_ms=0)
    with Peer(broker.address) as peer, Peer(broker.address) as consumer:
        assert peer.put(body=b"kept").code == 0
        assert broker.store.wait_dispatched(10) and pulled(consumer) == (0, b"kept")
        consumer.ask_pull(offset=1, bits=6, subscription="*", suspend=600_000)
        until(lambda: broker._front.held() == 1)
        probe.fail("pwrite", nth=1, errno=errno.EIO, path="/commitlog/", sticky=True)
        codes = [peer.put().code]
        while codes[-1] == 0:
            codes.append(peer.put().code)
        assert codes[-1] == NOT_AVAILABLE and broker._front.held() == 1
        assert pulled(peer) == (0, b"kept")


def test_a_full_disk_refuses_sends_until_there_is_room(serving):
    broker, probe = serving(write_path="mmap", segment_size_bytes=1 << 16, message_size_max_bytes=1 << 15)
    with Peer(broker.address) as peer:
        assert peer.put(body=b"first").code == 0 and broker.store.wait_dispatched(10)
        probe.fail("fallocate", nth=1, errno=errno.ENOSPC, path="/.alloc/", sticky=True)
        codes = [0]
        while codes[-1] == 0:
            codes.append(peer.put(body=bytes(8000)).code)
        assert codes[-1] == NO_FILE and len(codes) > 3
        assert {peer.answer(number).code for number in send_many(peer, 10, bytes(8000))} == {NO_FILE}
        assert pulled(peer) == (0, b"first")
        assert broker.store.stats()["errno"] == 0
        probe.clear()
        while peer.put(body=bytes(8000)).code != 0:     # the allocator tries again by itself
            pass
        assert pulled(peer) == (0, b"first")


def test_a_device_that_does_not_answer(serving):
    broker, probe = serving(flush_mode="sync", flush_backend="msync", flush_deadline_ms=600_000)
    broker.store.reconfigure(flush_deadline_ms=100)         # the network thread heeds it, too
    with Peer(broker.address) as peer:
        assert peer.put(body=b"durable").code == 0 and broker.store.wait_dispatched(10)
        probe.hold(SYNCS, path="/commitlog/")
        assert {peer.answer(number).code for number in send_many(peer, 20)} == {TIMEOUT}
        assert pulled(peer) == (0, b"durable")
        probe.release()
        assert peer.put().code == 0


def test_sends_that_wait_too_long_for_room_are_told(serving):
    broker, probe = serving(write_path="pool", flush_backend="fdatasync", pool_window_size_bytes=1 << 16, pool_window_count=2,
                            segment_size_bytes=1 << 18, message_size_max_bytes=1 << 15, waitTimeMillsInSendQueue=1,
                            busy_after_ms=60_000)
    with Peer(broker.address) as peer, Peer(broker.address) as other:
        while peer.put(body=b"first").code != 0:        # a new topic goes through Python, which may take longer than that
            pass
        broker.store.wait_dispatched(10)
        probe.hold("pwrite", path="/commitlog/")
        numbers = send_many(peer, 40, bytes(8000))
        probe.wait_held()
        answers = [peer.answer(number) for number in numbers]
        assert {answer.code for answer in answers} == {0, BUSY}
        busy = [answer for answer in answers if answer.code == BUSY]
        assert all(answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy") for answer in busy)
        assert pulled(other) == (0, b"first")           # pulls do not wait behind sends of others
        probe.release()
        while peer.put(body=bytes(8000)).code != 0:
            pass
        assert broker.store.wait_dispatched(10)
        stored = 2 + sum(answer.code == 0 for answer in answers)
        assert stored <= broker.store.max_offset("T", 0)
