"""`rmqstore transactions`: the list, and deciding by hand."""
import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def pending(tmp_path):
    """A store with three of them: {unique key: message id}."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        for i in range(3):
            store.prepare("T", b"%d" % i, group="PQ"[i % 2], queue_id=i, properties={"UNIQ_KEY": f"U{i}"})
        assert store.wait_dispatched(30)
        found = {m.unique_key: m.msg_id for m in store.scan("RMQ_SYS_TRANS_HALF_TOPIC")}
    return root, found


def test_the_list(pending, rmqstore, json_lines):
    root, _ = pending
    code, out, _ = rmqstore("transactions", root)
    lines = out.splitlines()
    assert code == 0 and len(lines) >= 3 and "group P, T/0" in lines[0] and "checked 0 times" in lines[0]
    code, rows = json_lines("transactions", root, "-g", "P")
    assert code == 0 and [(row["id"], row["queue_id"]) for row in rows] == [("U0", 0), ("U2", 2)]
    assert rows[0]["age_ms"] >= 0 and rows[0]["kind"] == "transaction"


def test_deciding_by_hand(pending, rmqstore, json_lines):
    root, ids = pending
    code, out, _ = rmqstore("transactions", root, "--commit", "U1", "--rollback", ids["U0"])
    assert code == 0 and "U1  committed" in out and "U0  rolled back" in out
    assert [row["id"] for row in json_lines("transactions", root)[1]] == ["U2"]
    with MessageStore.open(root, readonly=True) as store:
        assert [bytes(m.body) for m in store.scan("T")] == [b"1"]
    assert rmqstore("transactions", root, "--commit", "U1")[0] == 0         # decided so already
    code, out, err = rmqstore("transactions", root, "--rollback", "U1")
    assert code == 1 and "is committed already" in err
    for arguments, word in ((["--commit", "U2", "--commit", "U9"], "no half message of that id"),
                            (["--commit", "U2", "--rollback", "U2"], "choose one"), (["--commit", "U2", "-g", "P"], "--group")):
        code, _, err = rmqstore("transactions", root, *arguments)
        assert code in (1, 64) and word in err
    assert [row["id"] for row in json_lines("transactions", root)[1]] == ["U2"]        # none of these decided it


def test_a_commit_that_would_leave_out_light_queues_is_refused(tmp_path, rmqstore):
    root = tmp_path / "light"
    with MessageStore.open(root, profile="dev", enable_lmq=True, enable_multi_dispatch=True) as store:
        name = store.prepare("T", b"1", group="P", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}).id
    code, _, err = rmqstore("transactions", root, "--commit", name, "-o", "enable_lmq=false")
    assert code != 0 and "-o enable_lmq=true" in err
    code, out, _ = rmqstore("transactions", root, "--commit", name, "-o", "enable_lmq=true")
    assert code == 0 and "committed" in out
    with MessageStore.open(root, readonly=True) as store:
        assert [bytes(m.body) for m in store.get("%LMQ%a", 0, 0)] == [b"1"]
