"""A process that is killed at every change it makes to its directory, while transactions are prepared, decided, checked and
given up. Each transaction ends in exactly one of two states, and a model of what was told says in which ones it may be."""
import contextlib
import shutil
from collections import Counter

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "consumequeue_file_size_bytes": 400, "delay": "store_only",
         "transaction_check_interval_ms": 3_600_000, "transaction_check_max": 2, "transaction_op_interval_ms": 3_600_000}
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
LATER = 3_600_000
MODES = {"mmap": {}, "4.9": {"compat": "4.9"}, "pool-sync": {"write_path": "pool", "flush_mode": "sync"}}
NAMES = ("c", "r", "checked-c", "checked-r", "pending", "lost", "late")


class Life:
    """What one life was told, as far as the disk listened. begun: decisions that may or may not have come through."""

    def __init__(self, io):
        self.io, self.steps = io, 0
        self.prepared, self.committed, self.rolled_back, self.given_up = set(), set(), set(), set()
        self.begun = Counter()

    def step(self, done, name, call):
        """done: the set that has the name from then on."""
        if done is not self.prepared:
            self.begun[name] += 1
        result = call()
        if not self.io.frozen:
            done.add(name)
            self.steps += 1
        return result

    def live(self, root, **options):
        with MessageStore.open(root, _io=self.io, **SMALL | options) as store:
            held = {name: self.step(self.prepared, name, lambda name=name: store.prepare(
                "T", name.encode(), group="P" if "-" in name else name, properties={"UNIQ_KEY": name})) for name in NAMES[:-1]}
            self.step(self.committed, "c", held["c"].commit)
            self.step(self.rolled_back, "r", held["r"].rollback)
            store.on_check("P", lambda t: {"checked-c": "commit", "checked-r": "rollback"}[t.id] if t.checks > 1 else "unknown")
            store.on_check("lost", lambda t: None)
            now = held["pending"].born_timestamp + LATER
            store._checker.round(store, now)
            store._transactions.tend(store)
            store.offsets.flush()
            self.begun.update(("checked-c", "checked-r"))
            store._checker.round(store, now)
            if not self.io.frozen:
                self.committed.add("checked-c")
                self.rolled_back.add("checked-r")
                self.steps += 1
            self.begun["lost"] += 1
            store._checker.round(store, now)
            if not self.io.frozen:
                self.given_up.add("lost")
            late = self.step(self.prepared, "late", lambda: store.prepare("T", b"late", group="P", properties={
                "UNIQ_KEY": "late"}))
            self.step(self.committed, "late", late.commit)


def next_life(root, options, decide=None):
    """How often each name is visible, and given up; and what is pending."""
    with MessageStore.open(root, **SMALL | options) as store:
        pending = [p.id for p in store.transactions()]
        if decide is not None:
            for name in pending:
                getattr(store.transaction_by_id(name), decide)()
        assert store.wait_dispatched(30)
        seen, given_up = (Counter(bytes(m.body).decode() for m in store.scan(topic)) for topic in ("T", GIVEN_UP))
        return seen, given_up, pending


def judge(life, seen, given_up, pending, where):
    assert max(seen.values(), default=1) == 1, f"{where}: visible twice: {seen}"
    assert len(set(pending)) == len(pending), f"{where}: pending twice: {pending}"
    assert not set(pending) & set(seen), f"{where}: visible, and pending"
    assert life.committed <= set(seen) and not life.committed & set(pending), f"{where}: committed, and not so"
    assert not life.rolled_back & (set(seen) | set(pending)), f"{where}: rolled back, and not so"
    assert life.given_up <= set(given_up) and not life.given_up & set(pending), f"{where}: given up, and not so"
    for name in life.prepared - set(life.begun):
        assert name in pending, f"{where}: {name} is prepared, nobody has decided it, and it is not pending"
    assert set(seen) <= {"c", "checked-c", "late"} and not {"pending", "r"} & set(given_up), f"{where}: decided by nobody"


@pytest.mark.parametrize("mode", MODES)
def test_killed_at_every_change(memory_disk, mode):
    options, steps = MODES[mode], set()
    for nth in range(1, 400):
        root = memory_disk / "s"
        life = Life(ProbeIo(keep_bytes=False))
        life.io.freeze("mutate", nth)
        with contextlib.suppress(errors.RmqStoreError, OSError, AssertionError):
            life.live(root, **options)
        where = f"killed at change {nth}"
        first = next_life(root, options)
        judge(life, *first, where)
        decide = ("commit", "rollback")[nth % 2]
        seen, _, _ = next_life(root, options, decide)
        expected = first[0] + Counter(first[2]) if decide == "commit" else first[0]
        assert seen == expected, f"{where}: after another life"
        assert next_life(root, options)[::2] == (seen, []), f"{where}: decided, and not for good"
        steps.add(life.steps)
        shutil.rmtree(root)
        if not life.io.frozen:
            break
    assert not life.io.frozen and nth > 15 and len(steps) > 6, (nth, steps)
    assert life.prepared == set(NAMES) and first[2] == ["pending"]


def op_messages(root):
    with MessageStore.open(root, readonly=True, **SMALL) as store:
        return len(list(store.scan("RMQ_SYS_TRANS_OP_HALF_TOPIC")))


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_a_commit_without_its_op_message_is_found(tmp_path, compat, monkeypatch):
    """What a kill between the two puts leaves: the next life settles the half message and puts no second copy."""
    options = SMALL | {"compat": compat}
    with MessageStore.open(tmp_path, **options) as store:
        held = [store.prepare("T", b"%d" % i, group="P") for i in range(3)]
        monkeypatch.setattr(store._transactions, "write_ops", lambda *a, **k: None)
        held[1].commit()
        monkeypatch.undo()
        store._transactions._unwritten.clear()
    before = op_messages(tmp_path)
    with MessageStore.open(tmp_path, **options) as store:
        assert [p.id for p in store.transactions()] == [held[0].id, held[2].id]
        store.transaction_by_id(held[1].id).commit()
        with pytest.raises(errors.TransactionDecided):
            store.transaction_by_id(held[1].id).rollback()
        store._transactions.tend(store)
    with MessageStore.open(tmp_path, **options) as store:
        assert [bytes(m.body) for m in store.scan("T")] == [b"1"] and len(store.transactions()) == 2
    assert (before, op_messages(tmp_path)) == (0, 1)


def test_an_interrupted_commit_is_looked_for(tmp_path, monkeypatch):
    """Ctrl-C in the put of the real record: whether it is stored is found out before anything is put again."""
    with MessageStore.open(tmp_path, **SMALL) as store:
        real = store._put_copy
        for stored in (True, False):
            transaction = store.prepare("T", b"%d" % stored, group="P")

            def interrupted(*args, stored=stored, **keywords):
                if stored:
                    real(*args, **keywords)
                raise KeyboardInterrupt

            class Interrupted:
                """The store, with a put that is interrupted."""

                _put_copy = staticmethod(interrupted)

                def __getattr__(self, name):
                    return getattr(store, name)

            transaction._store = Interrupted()
            with pytest.raises(KeyboardInterrupt):
                transaction.commit()
            assert transaction.state == "pending"
            transaction._store = store
            assert [p.id for p in store.transactions()] == ([] if stored else [transaction.id])
            if stored:
                with pytest.raises(errors.TransactionDecided):
                    transaction.rollback()
            transaction.commit()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T")] == [b"1", b"0"] and store.transactions() == []


def test_an_interrupted_rollback_whose_op_message_is_there_is_one(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path, **SMALL) as store:
        transaction = store.prepare("T", b"1", group="P")
        table = store._transactions._table(store)
        settle = table.settle

        def interrupted(*arguments):
            settle(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(table, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transaction.rollback()
        monkeypatch.undo()
        assert transaction.state == "rolled back"
        with pytest.raises(errors.TransactionDecided):
            transaction.commit()
        transaction.rollback()


def test_an_interrupted_prepare_hides_no_other_transaction(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path, **SMALL) as store:
        first = store.prepare("T", b"1", group="P")
        monkeypatch.setattr(store._transactions._table(store), "came", lambda *a: [][0])
        with pytest.raises(IndexError):
            store.prepare("T", b"2", group="P")
        monkeypatch.undo()
        assert [half.id for half in store._transactions._table(store).pending()] == [first.id]
        assert store.wait_dispatched(30) and len(store.transactions()) == 2


def test_a_full_store_refuses_the_commit_and_it_stays_pending(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as store:
        transaction = store.prepare("T", b"1", group="P")

        class Refusing:
            def _put_copy(self, *args, **keywords):
                raise errors.ServiceNotAvailable("full")

            def __getattr__(self, name):
                return getattr(store, name)

        for decide in ("commit", "rollback"):
            transaction._store = Refusing()
            with pytest.raises(errors.ServiceNotAvailable):
                getattr(transaction, decide)()
            assert transaction.state == "pending" and not transaction._half.unsure
        transaction._store = store
        store._transactions.tend(store)
        assert [p.id for p in store.transactions()] == [transaction.id]
        transaction.commit()
        assert store.wait_dispatched(30) and len(store.get("T", 0, 0)) == 1
