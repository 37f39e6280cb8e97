"""The check-back: who is asked when, how often, and where what nobody decides ends. BRK-06 and BRK-07 of upstream's tests.
Rounds are called with a time, so that no test waits for one."""
import logging
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.base.io.threads import start_thread
from rmq_store.services.transaction import checking
from rmq_store.services.transaction.table import INTERRUPTED
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
HOUR = 3_600_000


class Producer:
    """A group that answers what it is told to."""

    def __init__(self, store, answer="unknown", group="P"):
        self.store, self.answer, self.asked = store, answer, []
        store.on_check(group, self)

    def __call__(self, transaction):
        self.asked.append((transaction.id, transaction.checks, bytes(transaction.message.body)))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture(params=["4.9", "5.x"])
def store(request, tmp_path):
    with MessageStore.open(tmp_path, compat=request.param, transaction_check_interval_ms=HOUR,
                           transaction_op_interval_ms=HOUR, **SMALL) as store:
        yield store


def check(store, ms):
    """One round, as if `ms` after now."""
    assert store.wait_dispatched(30)
    pending = store.transactions()
    return store._checker.round(store, (pending[0].born_timestamp if pending else 0) + ms)


def bodies(store, topic):
    assert store.wait_dispatched(30)
    return [bytes(m.body) for m in store.scan(topic)]


def test_the_first_check_comes_after_the_timeout(store):
    producer = Producer(store)
    transaction = store.prepare("T", b"1", group="P", born_timestamp=store.prepare("T", b"", group="Q").born_timestamp)
    assert check(store, 6000) == 0 and producer.asked == []
    assert check(store, 6001) == 1 and producer.asked == [(transaction.id, 1, b"1")]
    assert transaction.state == "pending" and transaction.checks == 1


@pytest.mark.parametrize(("answer", "state", "stored"), [("commit", "committed", [b"1"]), ("rollback", "rolled back", [])])
def test_the_group_decides(store, answer, state, stored):
    Producer(store, answer)
    transaction = store.prepare("T", b"1", group="P")
    assert check(store, HOUR) == 1 and check(store, HOUR) == 0
    assert transaction.state == state and bodies(store, "T") == stored and store.transactions() == []


@pytest.mark.parametrize("answer", ["unknown", None, "yes", KeyError("lost"), SystemExit(1),
                                    KeyboardInterrupt()])
def test_unknown_is_asked_again(store, answer, caplog):
    producer = Producer(store, answer)
    transaction = store.prepare("T", b"1", group="P")
    with caplog.at_level(logging.WARNING, "rmq_store.transaction"):
        for i in range(1, 4):
            assert check(store, HOUR) == 1 and transaction.checks == i
    assert [checks for _, checks, _ in producer.asked] == [1, 2, 3] and transaction.state == "pending"
    assert len(caplog.records) == (0 if answer in ("unknown", None) else 3)
    producer.answer = "commit"
    check(store, HOUR)
    assert bodies(store, "T") == [b"1"]


def test_what_nobody_decides_is_given_up_after_15_checks(store):
    """BRK-06: one check request a round, above the maximum it is discarded once."""
    producer = Producer(store)
    transaction = store.prepare("T", b"1", group="P", tags="a", flag=3)
    for i in range(15):
        assert check(store, HOUR) == 1
        assert len(producer.asked) == i + 1 and bodies(store, GIVEN_UP) == []
    assert check(store, HOUR) == 1 and check(store, HOUR) == 0
    assert len(producer.asked) == 15 and transaction.state == "given up" and store.transactions() == []
    assert bodies(store, "T") == [] and bodies(store, GIVEN_UP) == [b"1"]
    moved = store.get(GIVEN_UP, 0, 0)[0]
    assert (moved.tags, moved.flag, moved.properties["REAL_TOPIC"], moved.properties["TRANSACTION_CHECK_TIMES"]) == (
        "a", 3, "T", "15")
    moved = None
    with pytest.raises(errors.TransactionDecided, match="given up"):
        transaction.commit()
    assert store.transaction_by_id(transaction.id).state == "given up"


def test_what_is_too_old_is_given_up_unasked(store):
    producer = Producer(store)
    store.prepare("T", b"1", group="P")
    assert check(store, 72 * HOUR + 1) == 1 and producer.asked == []
    assert bodies(store, GIVEN_UP) == [b"1"]


def test_a_clock_that_jumps_gives_nothing_up(tmp_path):
    """Ahead for a minute, and behind until somebody puts it right: the group is asked, as after any timeout."""
    now, io = 1_795_000_000_000, ProbeIo(keep_bytes=False)
    io.set_clock(now, 0)
    with MessageStore.open(tmp_path, transaction_check_interval_ms=HOUR, _io=io, **SMALL) as store:
        producer = Producer(store)
        transaction = store.prepare("T", b"1", group="P")
        for jump in (100 * HOUR, -100 * HOUR, 200 * HOUR):
            now += jump
            io.set_clock(now, 0)
            assert store.wait_dispatched(30)
            store._checker.round(store, now)
            assert transaction.state == "pending"
        assert len(producer.asked) == 2                 # not where the clock was right
        producer.answer = "commit"
        store._checker.round(store, now + 10_000)
        assert transaction.state == "committed" and store.wait_dispatched(30) and bodies(store, GIVEN_UP) == []


@pytest.mark.parametrize("seconds", [60, 1])
def test_a_message_may_say_when_its_first_check_is(store, seconds):
    Producer(store)
    store.prepare("T", b"1", group="P", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": str(seconds)})
    assert check(store, seconds * 1000 - 900) == 0 and check(store, seconds * 1000 + 1) == 1


def test_a_group_without_a_callback_is_left_alone(store):
    producer = Producer(store, "commit")
    other = store.prepare("T", b"other", group="Q")
    store.prepare("T", b"mine", group="P")
    check(store, HOUR)
    assert bodies(store, "T") == [b"mine"] and other.checks == 0
    store.on_check("P", None)
    store.prepare("T", b"later", group="P")
    assert check(store, 80 * HOUR) == 0 and len(producer.asked) == 1


def test_the_half_message_is_put_again_as_it_was(store):
    """BRK-07: born timestamp kept, the queue offset of the first one carried."""
    Producer(store)
    born = store.prepare("X", b"", group="Q").born_timestamp - 7
    first = store.prepare("T", b"1", group="P", tags="a", keys="k", born_timestamp=born, flag=9, reconsume_times=1,
                          properties={"mine": "1"})
    before = store._transactions._half_message(store, first._half).copy()
    check(store, HOUR)
    check(store, HOUR)
    after = first.message.copy()
    assert after.queue_offset == 3 and after.queue_id == 0 and after.topic == HALF
    assert after.properties == before.properties | {"TRANSACTION_CHECK_TIMES": "2", "TRAN_PREPARED_QUEUE_OFFSET": "1"}
    for name in ("born_timestamp", "flag", "reconsume_times", "sys_flag", "born_host", "body"):
        assert getattr(after, name) == getattr(before, name)
    result = first.commit()
    assert store.message_at(result.offset).prepared_transaction_offset == after.offset


def test_an_older_one_of_another_group_is_in_nobodys_way(store):
    """The queue below it is read again: what a check has put again is not taken for settled."""
    Producer(store)
    store.prepare("T", b"0", group="Q")
    transaction = store.prepare("T", b"1", group="P")
    for i in range(1, 5):
        assert check(store, HOUR) == 1 and (transaction.checks, transaction.state) == (i, "pending")


def test_old_ids_lead_to_it_after_a_check(store):
    Producer(store)
    transaction = store.prepare("T", b"1", group="P")
    place = transaction.offset
    assert store.wait_dispatched(30)
    message_id = store.message_at(place).msg_id
    check(store, HOUR)
    assert transaction.offset != place
    assert store.transaction_by_id(message_id).id == transaction.id == store.transaction_by_id(transaction.id).id
    assert store._transactions.at(store, place, 0, "P").id == transaction.id
    store.transaction_by_id(message_id).commit()
    assert transaction.state == "committed" and store.transaction_by_id(message_id).state == "committed"


def test_offsets_of_the_system_group(store):
    producer = Producer(store)
    kept = store.prepare("T", b"0", group="Q")
    for i in range(3):
        store.prepare("T", b"%d" % i, group="P").commit()
    pending = store.prepare("T", b"1", group="P")
    check(store, HOUR)
    store._transactions.tend(store)
    assert store.offsets.query(GROUP, HALF, 0) == 0         # the first one is open
    kept.rollback()
    store._transactions.tend(store)
    assert store.offsets.query(GROUP, HALF, 0) == pending.half_offset == 5 and len(producer.asked) == 1
    assert store.wait_dispatched(30)
    assert store.offsets.query(GROUP, OP, 0) == store.max_offset(OP, 0) > 0


def test_the_thread_asks_and_a_callback_may_close_the_store(tmp_path):
    asked, threads = threading.Event(), []
    store = MessageStore.open(tmp_path, transaction_timeout_ms=1, transaction_check_interval_ms=1, **SMALL)

    def close(transaction):
        threads.append(threading.current_thread())
        store.close()
        asked.set()
        return "commit"

    store.prepare("T", b"1", group="P")
    store.on_check("P", lambda transaction: "unknown")
    store.on_check("P", close)
    assert asked.wait(60) and store.closed
    threads[0].join(60)
    assert not threads[0].is_alive()
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert len(store.transactions()) == 1 and bodies(store, "T") == []


def test_a_put_hook_that_ends_a_thread_of_the_store_does_not(tmp_path, caplog):
    """sys.exit() in a hook: the threads that check, and that write op messages, are not the program's to end."""
    put, stop = threading.Event(), True

    def hook(message):
        if stop and message.topic in (HALF, OP) and threading.current_thread() is not threading.main_thread():
            put.set()
            raise SystemExit(1)

    with MessageStore.open(tmp_path, transaction_timeout_ms=1, transaction_check_interval_ms=1, transaction_op_interval_ms=1,
                           **SMALL) as store:
        store.add_put_hook(hook)
        transaction = store.prepare("T", b"1", group="P")
        store.prepare("T", b"2", group="other").commit()
        until(lambda: any(r.getMessage().endswith("SystemExit(1)") for r in caplog.records))
        store.on_check("P", lambda transaction: "commit")
        until(lambda: "CHECK_FAILED" in {getattr(r, "event", "") for r in caplog.records})
        stop = False
        until(lambda: transaction.state == "committed" and store._transactions._unwritten == [])


def test_wrong_callbacks(store):
    for group, callback in (("", print), (None, print), ("P", "commit")):
        with pytest.raises(errors.ArgumentIllegal):
            store.on_check(group, callback)


def test_one_that_cannot_be_put_again_holds_up_nobody(store, caplog):
    """A broker's half message whose properties have no room for a count, and one that a commit cannot put."""
    producer = Producer(store, "commit")
    place = {"PGROUP": "P", "REAL_TOPIC": "T", "REAL_QID": "0"}
    store.put(HALF, b"full", properties=place | {"UNIQ_KEY": "full", "a": "x" * 32690})
    store.put(HALF, b"long", properties=place | {"UNIQ_KEY": "long", "REAL_TOPIC": "T" * 300})
    store.prepare("T", b"mine", group="P")
    with caplog.at_level(logging.WARNING, "rmq_store.transaction"):
        assert check(store, HOUR) == 3
    assert bodies(store, "T") == [b"full", b"mine"] and [id for id, *_ in producer.asked][:2] == ["full", "long"]
    assert len(producer.asked) == 3
    assert ["transaction long" in record.getMessage() for record in caplog.records] == [True]
    check(store, 73 * HOUR)
    assert store.transactions() == [] and bodies(store, GIVEN_UP) == [b"long"]


@pytest.mark.parametrize("size", range(32500, 32700, 20))
def test_what_is_prepared_can_be_put_again(store, size):
    Producer(store)
    try:
        transaction = store.prepare("T", b"1", group="P", properties={"a": "x" * size})
    except errors.PropertiesSizeExceeded:
        assert size > 32500
        return
    assert size < 32690 and check(store, HOUR) == 1 and transaction.checks == 1


@pytest.mark.parametrize("stored", [True, False])
def test_a_check_looks_what_became_of_an_interrupted_commit(store, monkeypatch, stored):
    producer = Producer(store, "commit")
    transaction = store.prepare("T", b"1", group="P")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._transactions, "_settle", interrupted)
        if not stored:
            patched.setattr(type(store._transactions), "_commit", interrupted)
            transaction._half.unsure = INTERRUPTED
        with pytest.raises(KeyboardInterrupt):
            store._transactions._commit(store, transaction._half, None)
    check(store, HOUR)
    assert transaction.state == "committed" and bodies(store, "T") == [b"1"] and store.transactions() == []
    assert len(producer.asked) == (0 if stored else 1)


def test_two_threads_begin_to_check(store, monkeypatch):
    """One thread asks, which close() waits for."""
    started, begin = [], threading.Barrier(2)
    pause = threading.Event()

    def slow(run, name):
        started.append(name)
        for _ in range(200):
            pause.wait(0.001)
        return start_thread(run, name)

    def add(group):
        begin.wait(60)
        store.on_check(group, lambda transaction: None)

    monkeypatch.setattr(checking, "start_thread", slow)
    threads = [threading.Thread(target=add, args=(group,)) for group in "PQ"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert started == ["rmq-transactions"]


def test_the_list_read_while_a_check_puts_a_half_message_again(tmp_path):
    """Whoever reads the queue then finds the new half message before the check has noted it: it is the one that stays."""
    with MessageStore.open(tmp_path, **SMALL) as store:
        transaction = store.prepare("T", b"1", group="P")

        class Listing:
            """The store, with a put behind which another thread lists the transactions."""

            def put(self, *arguments, **keywords):
                result = store.put(*arguments, **keywords)
                assert store.wait_dispatched(30)
                store.transactions()
                return result

            def __getattr__(self, name):
                return getattr(store, name)

        store._transactions.again(Listing(), transaction._half)
        assert [(p.id, p.half_offset) for p in store.transactions()] == [(transaction.id, 1)]
        store._transactions.tend(store)
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert [p.id for p in store.transactions()] == [transaction.id]
        store.transaction_by_id(transaction.id).commit()


def test_what_is_given_up_is_in_no_light_queue(tmp_path):
    with MessageStore.open(tmp_path, enable_lmq=True, enable_multi_dispatch=True, transaction_check_max=1,
                           transaction_check_interval_ms=HOUR, **SMALL) as store:
        Producer(store)
        transaction = store.prepare("T", b"1", group="P", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert check(store, HOUR) == 1 and check(store, HOUR) == 1 and transaction.state == "given up"
        assert bodies(store, GIVEN_UP) == [b"1"] and store.max_offset("%LMQ%a", 0) <= 0


@pytest.mark.parametrize("kind", [errors.ServiceNotAvailable, RuntimeError])
def test_a_transaction_that_cannot_be_put_again_holds_up_no_other(store, kind):
    def hook(message):
        if message.properties.get("KEYS") == "bad":
            raise kind("the quota is used up")
    bad = store.prepare("T", b"1", group="P", keys="bad")
    good = store.prepare("T", b"2", group="P")
    store.add_put_hook(hook)
    producer = Producer(store)
    check(store, HOUR)
    assert [asked[0] for asked in producer.asked] == [good.id] and bad.state == "pending"
