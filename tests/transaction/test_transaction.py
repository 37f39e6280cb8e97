"""Transactions: what is stored, in which bytes, who sees it when, and what a second decision gets."""
import errno
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.codec.properties import java_hashmap_order
from rmq_store.services.transaction.table import Half

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
HOUR = 3_600_000
MODES = {"mmap": {}, "pool": {"write_path": "pool"}, "sync": {"flush_mode": "sync"},
         "pool-sync": {"write_path": "pool", "flush_mode": "sync"}, "4.9": {"compat": "4.9"}}
modes = pytest.mark.parametrize("mode", MODES)


def opened(path, **options):
    return MessageStore.open(path, **SMALL | options)


def bodies(store, topic, queue_id=None):
    assert store.wait_dispatched(30)
    return [bytes(m.body) for m in store.scan(topic, queue_id)]


@modes
def test_commit_and_rollback(tmp_path, mode):
    with opened(tmp_path, **MODES[mode]) as store:
        with store.transaction("T", b"one", group="P", queue_id=3, tags="a", keys=["k", "l"]) as first:
            assert first.state == "pending" and bodies(store, "T") == []
        with pytest.raises(ZeroDivisionError), store.transaction("T", b"two", group="P") as second:
            raise ZeroDivisionError
        third = store.prepare("T", bytearray(b"three"), group="P", flag=7, born_timestamp=12345, reconsume_times=2)
        assert (first.state, second.state, third.state) == ("committed", "rolled back", "pending")
        assert [p.id for p in store.transactions()] == [third.id] == [p.id for p in store.transactions(group="P")]
        assert store.transactions(group="Q") == []
        third.commit(wait=True)
        assert bodies(store, "T") == [b"one", b"three"] and store.transactions() == []
        message, other = store.scan("T")
        assert (message.queue_id, message.tags, message.keys, message.unique_key) == (3, "a", "k l", first.id)
        assert (other.flag, other.born_timestamp, other.reconsume_times) == (7, 12345, 2)
        assert store.get("T", 3, 0, tags="a").messages and store.query_key("T", "k").messages
        assert store.query_key("T", first.id, exact=False).messages
        message = other = None


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_bytes_of_the_records(tmp_path, compat):
    with opened(tmp_path, compat=compat, transaction_op_interval_ms=HOUR) as store:
        store.put("X", b"so that the log offset of a half message is not 0")
        transaction = store.prepare("T", b"body", group="P", queue_id=5, tags="a", properties={"UNIQ_KEY": "U", "mine": "1"})
        store.prepare("T", b"", group="P").rollback()
        assert store.wait_dispatched(30)
        half = store.get(HALF, 0, 0, 1)[0]
        names = ["UNIQ_KEY", "mine", "TRAN_MSG", "PGROUP", "TAGS", *(["__transactionId__"] if compat == "5.x" else []),
                 "REAL_TOPIC", "REAL_QID"]
        assert half.properties == {"UNIQ_KEY": "U", "mine": "1", "TRAN_MSG": "true", "PGROUP": "P", "TAGS": "a",
                                   "REAL_TOPIC": "T", "REAL_QID": "5"} | ({"__transactionId__": "U"} if compat == "5.x" else {})
        assert list(half.properties) == java_hashmap_order(names, 128 if compat == "5.x" else 16)
        assert (half.queue_id, half.sys_flag & 0xC, half.prepared_transaction_offset) == (0, 0, 0)
        assert (transaction.offset, transaction.half_offset) == (half.offset, 0)
        result = transaction.commit()
        real = store.message_at(result.offset)
        assert real.properties_raw == half.properties_raw and bytes(real.body) == b"body"
        assert (real.topic, real.queue_id, real.sys_flag & 0xC, real.prepared_transaction_offset) == ("T", 5, 8, half.offset)
        half = real = None
    with opened(tmp_path, compat=compat, readonly=True) as store:
        ops = [(m.tags, bytes(m.body), m.queue_id, list(m.properties)) for m in store.scan(OP)]
        bodies = [b"1", b"0"] if compat == "4.9" else [b"1,", b"0,"]      # the commit's waits for company, until close()
        assert ops == [("d", body, 0, java_hashmap_order(("TAGS", "WAIT"))) for body in bodies]


def test_op_messages_of_5x_are_put_together(tmp_path):
    with opened(tmp_path, transaction_op_interval_ms=HOUR, transaction_op_size_max_bytes=32) as store:
        for i in range(30):
            with store.transaction("T", b"%d" % i, group="P"):
                pass
        store._transactions.tend(store)
        found = bodies(store, OP)
        assert b"".join(found) == b"".join(b"%d," % i for i in range(30))
        assert len(found) < 5 and all(len(body) <= 32 and body.endswith(b",") for body in found)
        assert (store.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0), store.offsets.query("CID_RMQ_SYS_TRANS", OP, 0)) == (
            30, len(found))


def test_decided_twice(tmp_path):
    with opened(tmp_path) as store:
        transaction = store.prepare("T", b"1", group="P")
        first = transaction.commit()
        assert transaction.commit() is first
        with pytest.raises(errors.TransactionDecided, match="committed already") as raised:
            transaction.rollback()
        assert raised.value.state == "committed"
        other = store.prepare("T", b"2", group="P")
        other.rollback()
        assert other.rollback() is None
        with pytest.raises(errors.TransactionDecided, match="rolled back"):
            other.commit()
        with store.transaction("T", b"3", group="P") as inside:
            inside.rollback()
        with pytest.raises(KeyError), store.transaction("T", b"4", group="P") as late:
            late.commit()
            raise KeyError
        assert bodies(store, "T") == [b"1", b"4"]


@modes
@pytest.mark.parametrize("by", ["transaction id", "message id"])
def test_after_a_restart_by_id(tmp_path, mode, by):
    names = []
    with opened(tmp_path, **MODES[mode]) as store:
        for body in (b"commit", b"roll back", b"was committed", b"was rolled back", b"pending"):
            t = store.prepare("T", body, group="P")
            assert store.wait_dispatched(30)
            names.append(t.id if by == "transaction id" else store.message_at(t.offset).msg_id)
            if body.startswith(b"was "):
                (t.commit if b"committed" in body else t.rollback)()
        t = None
    with opened(tmp_path, **MODES[mode]) as store:
        assert len(store.transactions()) == 3
        states = [store.transaction_by_id(name).state for name in names]
        assert states == ["pending", "pending", "committed", "rolled back", "pending"]
        store.transaction_by_id(names[0]).commit()
        store.transaction_by_id(names[1]).rollback()
        store.transaction_by_id(names[2]).commit()
        store.transaction_by_id(names[3]).rollback()
        for name, decide in ((names[2], "rollback"), (names[3], "commit"), (names[0], "rollback"), (names[1], "commit")):
            with pytest.raises(errors.TransactionDecided):
                getattr(store.transaction_by_id(name), decide)()
        assert sorted(bodies(store, "T")) == [b"commit", b"was committed"]
        assert [p.topic for p in store.transactions()] == ["T"]
        for name in ("nobody", "7F00000100002A9F0000000000000001"):
            with pytest.raises(errors.TransactionUnknown):
                store.transaction_by_id(name)
        with pytest.raises(errors.ArgumentIllegal, match="id is ''"):
            store.transaction_by_id("")


def test_by_place_all_three_have_to_fit(tmp_path):
    """BRK-05: as the end of a transaction names it."""
    with opened(tmp_path) as store:
        store.put("X", b"")
        t = store.prepare("T", b"1", group="P")
        assert store.wait_dispatched(30)
        half = store._transactions.at(store, t.offset, t.half_offset, "P")
        assert half.id == t.id
        for wrong in ((t.offset, 7, "P"), (t.offset, 0, "Q"), (0, 0, "P"), (t.offset + 1, 0, "P")):
            with pytest.raises(errors.TransactionUnknown):
                store._transactions.at(store, *wrong)


def test_nobody_sees_a_half_message(tmp_path):
    with opened(tmp_path) as store, store.consumer("G", "T") as consumer:
        store.prepare("T", b"half", group="P", keys="k", tags="a")
        assert store.wait_dispatched(30)
        assert consumer.poll() is None and "T" not in store.topics()
        assert not store.query_key("T", "k").messages and not store.get("T", 0, 0).messages
        assert len(store.get(HALF, 0, 0)) == 1         # an operator who asks for that topic by name


def test_what_cannot_be_committed_is_refused_at_once(tmp_path):
    with opened(tmp_path, delay="store_only") as store:
        for topic in ("", "ü", None, HALF, OP, GIVEN_UP, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "x" * 256):
            with pytest.raises(errors.MessageIllegal):
                store.prepare(topic, b"", group="P")
        for more in ({"queue_id": -1}, {"queue_id": "1"}, {"group": ""}, {"group": None}, {"properties": {"DELAY": "3"}},
                     {"properties": {"TIMER_DELAY_SEC": "3"}}, {"sys_flag": -1}, {"tags": "a\x01"}):
            with pytest.raises(errors.MessageIllegal):
                store.prepare("T", b"", **{"group": "P"} | more)
        with pytest.raises(errors.MessageIllegal):
            store.prepare("T", bytes(1 << 20), group="P")
        assert store.transactions() == [] and store.max_log_offset == 0
        once = store.prepare("T", b"", group="P", properties={"UNIQ_KEY": "U"})
        with pytest.raises(errors.MessageIllegal, match="is pending"):
            store.prepare("T", b"other", group="P", properties=b"UNIQ_KEY\x01U\x02")
        once.commit()
        again = store.prepare("T", b"", group="P", properties={"UNIQ_KEY": "U"})
        again.rollback()
    with opened(tmp_path, readonly=True) as store:
        assert store.transactions() == []
        for call in (lambda: store.prepare("T", b"", group="P"), lambda: store.on_check("P", print)):
            with pytest.raises(errors.StoreNotWriteable):
                call()


def test_a_read_only_store_decides_nothing(tmp_path):
    with opened(tmp_path) as store:
        name = store.prepare("T", b"", group="P").id
    with opened(tmp_path, readonly=True) as store:
        assert [p.id for p in store.transactions()] == [name] and store.transactions()[0].age_ms >= 0
        with pytest.raises(errors.StoreNotWriteable):
            store.transaction_by_id(name).commit()


def test_many_threads_decide_one_transaction(tmp_path):
    with opened(tmp_path) as store:
        for _ in range(20):
            transaction, done = store.prepare("T", b"1", group="P"), []

            def decide(what, transaction=transaction, done=done):
                try:
                    getattr(transaction, what)()
                    done.append(what)
                except errors.TransactionDecided:
                    done.append("refused")

            threads = [threading.Thread(target=decide, args=(what,)) for what in ("commit", "rollback") * 3]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            won = "commit" if transaction.state == "committed" else "rollback"
            assert sorted(done) == sorted([won] * 3 + ["refused"] * 3)
        committed = len(bodies(store, "T"))
        assert store.transactions() == []
    with opened(tmp_path) as store:
        assert store.transactions() == [] and len(bodies(store, "T")) == committed


def test_the_error_of_a_block_that_another_thread_committed(tmp_path):
    """The roll-back comes too late; whoever called learns what the block raised."""
    with opened(tmp_path) as store:
        with pytest.raises(ZeroDivisionError), store.transaction("T", b"1", group="P") as transaction:
            rollback = transaction.rollback

            def late():
                thread = threading.Thread(target=store.transaction_by_id(transaction.id).commit)
                thread.start()
                thread.join()
                rollback()

            transaction.rollback = late
            raise ZeroDivisionError
        assert transaction.state == "committed"


def test_settled_between_two_looks(tmp_path):
    """Another thread settles it while somebody reads its place."""
    class Going(Half):
        """Loses its places after the first look."""

        __slots__ = ("looks",)

        @property
        def places(self):
            self.looks -= 1
            return [(0, 0)] if self.looks == 0 else []

        @places.setter
        def places(self, _):
            self.looks = 1

    with opened(tmp_path) as store:
        transaction = store.prepare("T", b"1", group="P")
        properties = transaction.message.properties

        def going():
            return Going(store.path, properties, "", 0, 0)

        for look in (lambda: transaction.half_offset, lambda: transaction.offset, lambda: bytes(transaction.message.body)):
            transaction._half = going()
            assert look() in (0, b"1")
        store._transactions.pending = lambda store: [going()]
        assert [row.half_offset for row in store.transactions()] == [0]


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_no_room_for_the_op_message(tmp_path, monkeypatch, compat):
    """The real message is stored, so the commit returns, and so does close(); the next open puts the op message."""
    with opened(tmp_path, compat=compat, transaction_op_interval_ms=HOUR) as store:
        transaction = store.prepare("T", b"1", group="P")

        def full(*_, **__):
            raise errors.DiskFull(errno.ENOSPC, "no space", str(tmp_path))

        monkeypatch.setattr(store._transactions, "write_ops", full)
        assert transaction.commit().queue_offset == 0 and transaction.state == "committed"
    assert not (tmp_path / "abort").exists()
    with opened(tmp_path, compat=compat) as store:
        assert store.transactions() == [] and bodies(store, "T") == [b"1"]
        store._transactions.tend(store)
        assert bodies(store, OP) == [b"0" if compat == "4.9" else b"0,"]


def test_close_releases_a_store_whose_transactions_cannot_be_read(tmp_path, monkeypatch, caplog):
    def odd(_):
        raise ValueError("of a kind that nobody has thought of")

    with opened(tmp_path) as store:
        store.prepare("T", b"1", group="P")
        monkeypatch.setattr(store._transactions, "tend", odd)
    assert store.closed and not (tmp_path / "abort").exists() and "nobody has thought of" in caplog.text
    with opened(tmp_path) as store:
        assert len(store.transactions()) == 1


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_a_second_decision_waits_where_the_first_did_not(tmp_path, decide):
    with MessageStore.open(tmp_path, flush_mode="async", flush_interval_ms=3_600_000, segment_size_bytes=1 << 20,
                           index_slots=100, index_entries_max=1000) as store:
        transaction = store.prepare("T", b"1", group="P", wait=False)
        getattr(transaction, decide)(wait=False)
        end = store.stats()["wrote"]
        getattr(transaction, decide)(wait=False)
        getattr(transaction, decide)(wait=True)
        assert store.stats()["flushed"] >= end


LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True, "lmq_count_max": 5, "segment_size_bytes": 1 << 20,
         "index_slots": 100, "index_entries_max": 1000}


@pytest.mark.parametrize(("properties", "error"), [
    ({"INNER_MULTI_DISPATCH": "queue1"}, errors.MessageIllegal),
    ({"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%a"}, errors.MessageIllegal),
    ({"INNER_MULTI_DISPATCH": ",".join(f"%LMQ%{i}" for i in range(6))}, errors.LmqConsumeQueueNumExceeded),
    ({"INNER_MULTI_DISPATCH": "%LMQ%a", "x": "y" * 32480}, errors.PropertiesSizeExceeded)])
def test_light_queues_that_no_commit_could_store_are_refused_at_once(tmp_path, properties, error):
    with MessageStore.open(tmp_path, **LIGHT) as store:
        with pytest.raises(error):
            store.prepare("T", b"1", group="P", properties=properties)
        assert store.transactions() == [] and store.stats()["wrote"] == 0
        largest = store.prepare("T", b"2", group="P", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "x": "y" * 32400})
        assert largest.commit().status.stored and store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.get("%LMQ%a", 0, 0)] == [b"2"]


def test_a_producer_that_sends_again_gets_the_transaction_that_it_has(tmp_path):
    with MessageStore.open(tmp_path, segment_size_bytes=1 << 20, index_slots=100, index_entries_max=1000) as store:
        key = {"UNIQ_KEY": "K"}
        first = store.prepare("T", b"1", group="P", properties=key)
        again = store.prepare("T", b"1", group="P", properties=key, queue_id=1, wait=True)
        assert again.offset == first.offset and len(store.transactions()) == 1
        for topic, body, group in (("T", b"2", "P"), ("U", b"1", "P"), ("T", b"1", "Q")):
            with pytest.raises(errors.MessageIllegal, match="another transaction of that id is pending"):
                store.prepare(topic, body, group=group, properties=key)
        again.commit()
        assert first.state == "committed"


def test_of_what_is_decided_no_message_behind_its_end_is_read(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path, segment_size_bytes=1 << 20, index_slots=100, index_entries_max=1000,
                           compat="4.9") as store:
        decided = [store.prepare("T", b"1", group="P") for _ in range(2)]
        names = [transaction.id for transaction in decided]
        decided[0].commit()
        decided[1].rollback()
        store.put_many("T", [b"x"] * 2000)
        assert store.wait_dispatched(30)
        read, get = [], store.get
        monkeypatch.setattr(store, "get", lambda *place: read.append(place) or get(*place))
        assert [store.transaction_by_id(name).state for name in names] == ["committed", "rolled back"]
        assert sum(place[0] == "T" for place in read) <= 4
