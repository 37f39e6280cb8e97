"""Message views in a child of fork: they can be read there, and what the child maps itself stays its own."""
import gc
import mmap
import os
import traceback

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}
MODES = {"mmap": {}, "pool": {"write_path": "pool"}}


def in_child(call):
    """The exit status of a child of fork that runs `call`: 0 fine, 1 it raised, below 0 the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def opened(tmp_path, request):
    with MessageStore.open(tmp_path / "s", **SMALL, **request.param) as store:
        store.put("T", b"body", tags="tag", keys="key", properties={"a": "b"})
        assert store.wait_dispatched(30)
        yield store


@pytest.mark.parametrize("opened", MODES.values(), ids=MODES, indirect=True)
def test_a_child_reads_what_its_parent_has_in_hand(opened):
    message = opened.get("T", 0, 0)[0]
    body = message.body

    def read():
        assert bytes(body) == b"body" and bytes(message.body) == b"body" and bytes(message) == b"body"
        assert (message.topic, message.tags, message.keys, message.properties["a"]) == ("T", "tag", "key", "b")
        assert in_child(lambda: bytes(body) == b"body" or os._exit(2)) == 0       # its own child, too

    assert in_child(read) == 0
    assert bytes(body) == b"body"


@pytest.mark.parametrize("opened", MODES.values(), ids=MODES, indirect=True)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_child_that_drops_a_view_unmaps_nothing(opened, closed):
    kept = [opened.get("T", 0, 0)[0]]
    if closed:
        opened.close()

    def drop():
        own = [mmap.mmap(-1, SMALL["segment_size_bytes"]) for _ in range(64)]     # they take what holes the parent's maps left
        for page in own:
            page.write(b"own")
        kept.clear()
        gc.collect()
        assert all(page[:3] == b"own" for page in own)

    assert in_child(drop) == 0
    assert bytes(kept[0].body) == b"body"


@pytest.mark.parametrize("opened", MODES.values(), ids=MODES, indirect=True)
def test_a_child_leases_from_a_store_of_its_own(opened, tmp_path):
    kept = opened.get("T", 0, 0)[0]

    def use():
        with MessageStore.open(tmp_path / "own", **SMALL) as own:
            own.put("T", b"mine")
            own.wait_dispatched(30)
            view = own.get("T", 0, 0)[0]
            assert own.leases == 1 and bytes(view) == b"mine" and bytes(kept) == b"body"
            del view
            assert own.leases == 0

    assert in_child(use) == 0
