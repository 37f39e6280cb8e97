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
                                   (OP, "0"), ("rmq_sys_wheel_timer", "0")])
def test_a_half_message_that_no_topic_can_take(tmp_path, place):
    with opened(tmp_path) as store:
        store.put(HALF, b"5,", properties=HALF_PROPERTIES | {"REAL_TOPIC": place[0], "REAL_QID": place[1]})
        transaction = store.prepare("T", b"1", group="P")
    with opened(tmp_path) as store:
        assert [row.id for row in store.transactions()] == [transaction.id]
        with pytest.raises(errors.TransactionUnknown):
            store.transaction_by_id("odd")


def test_flags_of_a_client_do_not_keep_it_out_of_the_half_queue(tmp_path):
    """A client sets TRANSACTION_PREPARED; a broker clears it. With it, a commit stored another transaction's message."""
    with opened(tmp_path) as store:
        store.prepare("T", b"0", group="P")
        for i, flag in enumerate((4, 8, 12), 1):
            transaction = store.prepare("T", b"%d" % i, group="P", sys_flag=flag)
            assert transaction.half_offset == i
            transaction.commit()
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")] == [b"1", b"2", b"3"]
        with pytest.raises(errors.MessageIllegal):
            store.prepare("T", b"", group="P", sys_flag="4")


def test_a_transaction_with_the_properties_of_an_older_one(tmp_path):
    """As when a consumer forwards what it got. What linked the older message to its half messages says nothing of the new."""
    with opened(tmp_path) as store:
        store.prepare("T", b"stays", group="Q")
        first = store.prepare("T", b"1", group="P")
        store.on_check("P", lambda transaction: "commit")
        assert store.wait_dispatched(30) and store._checker.round(store, first.born_timestamp + HOUR) == 1
        assert store.wait_dispatched(30)
        properties = next(iter(store.scan("T"))).properties
        assert properties["TRAN_PREPARED_QUEUE_OFFSET"] == "1" and properties["TRANSACTION_CHECK_TIMES"] == "1"
        second = store.prepare("T", b"2", group="P", properties=properties | {"UNIQ_KEY": "second"})
        assert store.wait_dispatched(30) and second.message.properties.keys() == properties.keys() - {
            "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"}
        store.put(HALF, b"3", properties=properties | {"UNIQ_KEY": "third"})       # by a broker, which keeps them
    with opened(tmp_path) as store:
        assert [row.id for row in store.transactions()][1:] == ["second", "third"]
        store.transaction_by_id("third").commit()
        place = store.put(HALF, b"4", properties=properties | {"UNIQ_KEY": "fourth", "TRAN_PREPARED_QUEUE_OFFSET": "0"}).offset
        assert store.wait_dispatched(30)
        fourth = store.message_at(place).msg_id
        store.transaction_by_id(fourth).rollback()
        assert store.transaction_by_id(fourth).state == "rolled back"
    with opened(tmp_path) as store:
        assert [row.id for row in store.transactions()][1:] == ["second"]
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")] == [b"1", b"3"]
