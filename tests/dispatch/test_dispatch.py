"""Dispatch: visibility, the confirm offset, waiting readers."""
import threading

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def test_only_durable_messages_are_seen_under_sync_flush(tmp_path):
    with MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as s:
        assert s.options.visibility == "durable"
        s.put("T", b"x")
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 1
    with MessageStore.open(tmp_path / "t", flush_mode="sync", compat="4.9", **SMALL) as s:
        assert s.options.visibility == "committed"


def test_confirm_offset_stops_dispatch(tmp_path):
    with MessageStore.open(tmp_path / "s", duplication_enabled=True, **SMALL) as s:
        s.confirm(0)
        places = [s.put("T", b"x") for _ in range(5)]
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 0
        s.confirm(places[3].offset)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 3
        s.confirm(places[4].offset + 1)         # inside the last record: it waits until all of it is confirmed
        assert s.get("T", 0, 0).max_offset in (3, 4)
        s.confirm(places[4].offset + places[4].size)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 5


def test_a_waiting_reader_is_woken(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert not s.wait_for_message("T", 0, 0, timeout=0)
        woken = []
        waiter = threading.Thread(target=lambda: woken.append(s.wait_for_message("T", 0, 2, timeout=30)))
        waiter.start()
        for _ in range(3):
            s.put("T", b"x")
        waiter.join(30)
        assert woken == [True] and s.get("T", 0, 2)[0].queue_offset == 2


def test_two_thousand_queues_keep_few_descriptors(memory_disk):
    with MessageStore.open(memory_disk / "s", consumequeue_fd_max=32, **SMALL | {"consumequeue_file_size_bytes": 200}) as s:
        for i in range(2000):
            s.put(f"topic-{i % 100}", b"x", queue_id=i // 100)
        assert s.wait_dispatched(60)
        assert len(s.topics()) == 100 and s.queues("topic-7") == list(range(20))
        assert all(s.max_offset(f"topic-{t}", q) == 1 for t in range(100) for q in range(20))
