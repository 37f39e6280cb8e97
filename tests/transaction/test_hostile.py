"""Records that no broker would have put beside real transactions: what is odd is left aside, and everything else goes on."""
import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HOUR = 3_600_000
HALF_PROPERTIES = {"UNIQ_KEY": "odd", "PGROUP": "P", "TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "0"}
NO_NUMBERS = ["\u00b2", "9" * 5000, "-1", "\u0664"]


def opened(path, **options):
    return MessageStore.open(path, transaction_check_interval_ms=HOUR, transaction_op_interval_ms=HOUR, **SMALL | options)


@pytest.mark.parametrize("number", NO_NUMBERS)
@pytest.mark.parametrize("where", ["op", "real", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET",
                                   "CHECK_IMMUNITY_TIME_IN_SECONDS", "REAL_QID"])
def test_what_is_no_number(tmp_path, where, number):
    with opened(tmp_path) as store:
        first = store.prepare("T", b"1", group="P")
        if where == "op":
            store.put(OP, number.encode(), tags="d")
        elif where == "real":
            store.put("T", b"x", sys_flag=8, properties={"TRAN_PREPARED_QUEUE_OFFSET": number})
        else:
            store.put(HALF, b"x", properties=HALF_PROPERTIES | {where: number})
        last = store.prepare("T", b"2", group="P")
    with opened(tmp_path) as store:
        ids = [row.id for row in store.transactions()]
        assert (ids[0], ids[-1]) == (first.id, last.id) and len(ids) == (3 if where not in ("op", "real", "REAL_QID") else 2)
        store.transaction_by_id(last.id).commit()
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")][-1] == b"2"


@pytest.mark.parametrize("place", [("../../x", "0"), ("T\0", "0"), ("\u00e9", "0"), ("T", "2147483648"), (HALF, "0"),
                                   (OP, "0")])
def test_a_half_message_that_no_topic_can_take(tmp_path, place):
    with opened(tmp_path) as store:
        store.put(HALF, b"5,", properties=HALF_PROPERTIES | {"REAL_TOPIC": place[0], "REAL_QID": place[1]})
        transaction = store.prepare("T", b"1", group="P")
    with opened(tmp_path) as store:
        assert [row.id for row in store.transactions()] == [transaction.id]
        with pytest.raises(errors.TransactionUnknown):
            store.transaction_by_id("odd")
