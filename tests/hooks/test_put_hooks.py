"""Put hooks: asked before every kind of put; they refuse with a status, or change properties; one that does neither changes no
byte."""
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.codec.batch import encode_batch
from rmq_store.status import PutStatus

SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


PUTS = {
    "put": lambda store, **k: store.put("T", b"x", **k),
    "put_async": lambda store, **k: store.put_async("T", b"x", **k).result(5),
    "put_many": lambda store, **k: store.put_many("T", [b"x"] * 3, **k),
    "put_many_mixed": lambda store, **k: store.put_many("T", [b"x", {"body": bytearray(b"x")}, b"x"], **k),
    "put_batch": lambda store, **k: store.put_batch("T", encode_batch([{"body": b"x"}] * 3), **k),
}


@pytest.mark.parametrize("how", PUTS)
@pytest.mark.parametrize("status", [s for s in PutStatus if not s.stored])
def test_a_refusal_stores_nothing_and_has_the_status_of_the_hook(store, how, status):
    store.add_put_hook(lambda message: (status, "not today"), "calendar")
    with pytest.raises(errors.PutRefused, match="put hook calendar refused the message: not today") as refused:
        PUTS[how](store)
    assert refused.value.status is status and refused.value.hook == "calendar" and isinstance(refused.value, errors.PutError)
    assert store.max_log_offset == 0


@pytest.mark.parametrize("how", PUTS)
def test_a_hook_that_changes_nothing_changes_no_byte(tmp_path, how):
    logs = []
    for hooked in (False, True):
        with MessageStore.open(tmp_path / str(hooked), **SMALL) as store:
            if hooked:
                store.add_put_hook(lambda message: dict(message.properties) and None)
            many = {} if how == "put_batch" else {"tags": "a", "keys": iter(["k1", "k2"])}
            PUTS[how](store, properties={"b": "c", "ü": "ö"}, born_timestamp=1, **many)
            logs.append([(m.properties_raw, m.tags, m.keys, m.size) for m in store.scan()])
    assert logs[0] == logs[1] and len(logs[0]) in (1, 3)


def test_it_sees_the_arguments(store):
    seen = []
    store.add_put_hook(lambda m: seen.append((m.topic, m.queue_id, bytes(m.body), dict(m.properties), m.flag, m.sys_flag,
                                              m.batch, m.born_timestamp, m.born_host, m.reconsume_times,
                                              m.prepared_transaction_offset)))
    store.put("T", bytearray(b"x"), queue_id=3, tags="a", keys=["k", "l"], properties=b"p\x01q", delay_level=2, flag=5,
              sys_flag=1, born_timestamp=7, born_host="192.0.2.9:4711", reconsume_times=8, prepared_transaction_offset=9)
    assert seen.pop() == ("T", 3, b"x", {"p": "q", "DELAY": "2", "TAGS": "a", "KEYS": "k l"}, 5, 1, False, 7, "192.0.2.9:4711",
                          8, 9)
    store.put_many("T", [{"body": b"1", "keys": ["k"], "flag": 3}, b"2"], tags="a")
    assert [(row[2], row[3], row[4]) for row in seen] == [(b"1", {"TAGS": "a", "KEYS": "k"}, 3), (b"2", {"TAGS": "a"}, 0)]
    batch = encode_batch([{"body": b"1"}, {"body": b"2"}])
    store.put_batch("T", batch, properties={"p": "q"})
    assert [(row[2], row[3], row[6]) for row in seen[2:]] == [(batch, {"p": "q"}, True)]        # asked once


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
@pytest.mark.parametrize("how", [h for h in PUTS if h != "put_batch"])
def test_what_it_changes_is_stored_as_if_it_had_been_given(tmp_path, how, compat):
    def change(message):
        message.put_property("TAGS", "new")
        message.put_property("trace", "7")
        message.clear_property("gone")
        message.clear_property("never there")

    logs = []
    for hooked in (True, False):
        with MessageStore.open(tmp_path / str(hooked), compat=compat, **SMALL) as store:
            if hooked:
                store.add_put_hook(change)
                PUTS[how](store, tags="old", keys="k", properties={"gone": "1", "p": "q"})
            else:
                PUTS[how](store, properties={"p": "q", "TAGS": "new", "KEYS": "k", "trace": "7"})
            store.wait_dispatched(10)
            logs.append([m.properties_raw for m in store.scan()])
            assert len(store.get("T", 0, 0, tags="new")) == len(logs[-1]) and len(store.query_key("T", "k")) == len(logs[-1])
    assert logs[0] == logs[1]


def test_the_properties_of_a_batch(store):
    store.add_put_hook(lambda message: message.put_property("trace", "7"))
    store.put_batch("T", encode_batch([{"body": b"1", "properties": {"a": "b"}}, {"body": b"2"}]))
    assert [m.properties for m in store.scan()] == [{"a": "b", "trace": "7"}, {"trace": "7"}]


def test_it_can_delay_a_message(store):
    store.add_put_hook(lambda message: message.put_property("DELAY", "3"))
    store.put("T", b"x")
    assert [m.topic for m in store.scan()] == ["SCHEDULE_TOPIC_XXXX"]


def test_what_it_changes_is_checked_like_everything(store):
    store.add_put_hook(lambda message: message.put_property("p", "x" * 40_000) if message.topic == "LONG" else None)
    store.add_put_hook(lambda message: message.put_property("p", "a\x01b") if message.topic == "ODD" else None)
    for topic, error in (("LONG", errors.PropertiesSizeExceeded), ("ODD", errors.MessageIllegal)):
        with pytest.raises(error):
            store.put(topic, b"x")
    with pytest.raises(errors.MessageIllegal):      # an argument that the store refuses anyway
        store.put("bad topic", b"x")
    assert store.max_log_offset == 0


def test_hooks_are_asked_in_order_and_see_what_those_before_changed(store):
    asked = []

    def first(message):
        asked.append("first")
        message.put_property("p", "1")

    def second(message):
        asked.append(message.properties["p"])
        return PutStatus.SERVICE_NOT_AVAILABLE

    store.add_put_hook(first)
    store.add_put_hook(second)
    store.add_put_hook(lambda message: asked.append("never"), "third")
    assert [name.rpartition(".")[2] for name in store.put_hooks] == ["first", "second", "third"]
    with pytest.raises(errors.PutRefused):
        store.put("T", b"x")
    assert asked == ["first", "1"]
    store.remove_put_hook(second)
    store.put("T", b"x")
    assert asked == ["first", "1", "first", "never"]


@pytest.mark.parametrize(("hook", "said"), [
    (lambda message: 1 / 0, "it raised ZeroDivisionError: division by zero"), (lambda message: True, "it returned True"),
    (lambda message: PutStatus.FLUSH_SLAVE_TIMEOUT, "it returned .*FLUSH_SLAVE_TIMEOUT.*, not a PutStatus"),
    (lambda message: setattr(message, "topic", "U"), "a put hook changes properties only"),
    (lambda: None, "it raised TypeError")])
def test_a_hook_that_fails_refuses_with_unknown_error(store, hook, said):
    store.add_put_hook(hook)
    with pytest.raises(errors.PutRefused, match=said) as refused:
        store.put("T", b"x")
    assert refused.value.status is PutStatus.UNKNOWN_ERROR and store.max_log_offset == 0
    store.remove_put_hook(hook)
    assert store.put("T", b"x").status is PutStatus.PUT_OK


def test_errors_of_the_store_and_interrupts_pass_as_they_are(store):
    for error in (errors.MessageIllegal("mine"), KeyboardInterrupt()):
        def hook(message, error=error):
            raise error
        store.add_put_hook(hook)
        with pytest.raises(type(error)) as found:
            store.put("T", b"x")
        assert found.value is error
        store.remove_put_hook(hook)


def test_put_many_asks_for_all_before_it_stores_the_first(store):
    bad = b"bad"
    store.add_put_hook(lambda message: PutStatus.MESSAGE_ILLEGAL if message.body == bad else None)
    with pytest.raises(errors.PutRefused) as refused:
        store.put_many("T", [b"1", b"2", bad])
    assert refused.value.stored is None and store.max_log_offset == 0
    with pytest.raises(errors.MessageIllegal, match="unknown"):
        store.put_many("T", [{"body": b"1", "unknown": 1}])


def test_a_hook_that_closes_the_store(store):
    store.add_put_hook(lambda message: store.close())
    with pytest.raises(errors.StoreClosed):
        store.put("T", b"x")
    with pytest.raises(errors.StoreClosed):
        store.add_put_hook(print)


def test_a_hook_that_puts_into_its_own_store_is_asked_for_that_too(store):
    store.add_put_hook(lambda message: store.put("U", b"again"))
    with pytest.raises(errors.PutRefused, match="RecursionError"):
        store.put("T", b"x")
    assert store.max_log_offset == 0


def test_what_the_store_puts_for_others_is_asked_for_too(store):
    topics = []
    store.add_put_hook(lambda message: topics.append(message.topic))
    store.prepare("T", b"x", group="g").commit()
    assert topics[:2] == ["RMQ_SYS_TRANS_HALF_TOPIC", "T"]


def test_arguments(store, tmp_path):
    for bad in (None, 5, "text"):
        with pytest.raises(errors.ArgumentIllegal):
            store.add_put_hook(bad)
    with pytest.raises(errors.ArgumentIllegal):
        store.add_put_hook(print, "")
    with pytest.raises(ValueError, match="was not added"):
        store.remove_put_hook(print)
    store.put("T", b"x")
    store.flush()
    with MessageStore.open(tmp_path / "s", readonly=True) as reader, pytest.raises(errors.StoreNotWriteable):
        reader.add_put_hook(print)


def test_threads_add_and_remove_while_others_put(store):
    stop = threading.Event()

    def change():
        hooks = [lambda message, i=i: message.put_property(f"p{i}", "1") for i in range(3)]
        while not stop.is_set():
            for hook in hooks:
                store.add_put_hook(hook)
            for hook in hooks:
                store.remove_put_hook(hook)

    changers = [threading.Thread(target=change) for _ in range(2)]
    for thread in changers:
        thread.start()
    for _ in range(500):
        store.put("T", b"x")
    stop.set()
    for thread in changers:
        thread.join()
    assert store.put_hooks == []
    assert sum(1 for _ in store.scan()) == 500


async def _put(path):
    async with await AsyncMessageStore.open(path, **SMALL) as store:
        def hook(message):
            return PutStatus.SERVICE_NOT_AVAILABLE if message.body == b"no" else None

        await store.add_put_hook(hook)
        with pytest.raises(errors.PutRefused):
            await store.put("T", b"no")
        assert (await store.put("T", b"yes")).queue_offset == 0
        await store.remove_put_hook(hook)
        assert (await store.put("T", b"no")).queue_offset == 1


def test_asyncio(tmp_path):
    import asyncio
    asyncio.run(_put(tmp_path / "a"))


@pytest.mark.parametrize("how", ["put", "put_async", "put_many"])
@pytest.mark.parametrize("given", [{"tags": "a\x02DELAY\x013"}, {"keys": "k\x01l"}, {"tags": 5}, {"tags": "\ud800"},
                                   {"tags": "a", "properties": {"TAGS": "b"}}, {"keys": "a", "properties": {"KEYS": "b"}}],
                         ids=["separator", "separator_in_keys", "number", "surrogate", "tags_twice", "keys_twice"])
def test_what_the_store_refuses_it_refuses_with_a_hook_that_changes_something(store, how, given):
    """The properties that a hook has made are stored as they are: tags and keys have to be checked on the way into them."""
    with pytest.raises(errors.MessageIllegal):
        PUTS[how](store, **given)
    store.add_put_hook(lambda message: message.put_property("checked", "yes"))
    with pytest.raises(errors.MessageIllegal):
        PUTS[how](store, **given)
    assert store.max_log_offset == 0


def test_an_error_of_another_store_refuses_and_ends_no_thread(store):
    """StoreClosed would tell the control thread, whose puts are asked for, too, that its own store closes."""
    def mirror(message):
        raise errors.StoreClosed("/elsewhere")

    store.add_put_hook(mirror, "mirror")
    with pytest.raises(errors.PutRefused, match="put hook mirror refused the message: it raised StoreClosed") as refused:
        store.put("T", b"x")
    assert not isinstance(refused.value, errors.StoreStateError)
