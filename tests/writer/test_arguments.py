"""put and put_async read their arguments themselves: what they take and refuse is what any Python function would."""
import inspect
import sys

import pytest

from rmq_store import MessageStore

ALL = {"topic": "T", "body": b"x", "queue_id": 3, "tags": "t", "keys": "k", "properties": {"a": "b"}, "flag": 7, "sys_flag": 0,
       "born_timestamp": 1234, "born_host": "10.0.0.1:99", "reconsume_times": 2, "prepared_transaction_offset": 5,
       "delay_level": 0, "wait": True}


def like_put(topic, body, *, queue_id=0, tags=None, keys=None, properties=None, flag=0, sys_flag=0, born_timestamp=None,
             born_host=None, reconsume_times=0, prepared_transaction_offset=0, delay_level=None, deliver_at=None, delay=None,
             light_queues=None, wait=None):
    """What the two say they are."""


@pytest.fixture(params=["put", "put_async"])
def put(request, tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, index_slots=100, index_entries_max=1000) as store:
        method = getattr(store, request.param)

        def call(*args, **keywords):
            result = method(*args, **keywords)
            return store.message_at((result.result() if request.param == "put_async" else result).offset)

        call.function = method
        yield call


def facts(m):
    return {"topic": m.topic, "body": bytes(m.body), "queue_id": m.queue_id, "tags": m.tags, "keys": m.keys, "flag": m.flag,
            "a": m.properties.get("a"), "born_timestamp": m.born_timestamp, "born_host": m.born_host,
            "reconsume_times": m.reconsume_times}


def test_the_signature_is_true(put):
    assert inspect.signature(put.function) == inspect.signature(like_put)
    assert len(put.function.__doc__) > 100 and put.function.__name__ in ("put", "put_async")


def test_any_order_any_name(put):
    """Also names that are equal to the interned ones without being them, as unpickled or joined strings are."""
    expected = {**{k: v for k, v in ALL.items() if k in facts(put(**ALL))}, "a": "b"}
    assert facts(put(**ALL)) == expected
    assert facts(put(**dict(reversed(ALL.items())))) == expected
    copies = {"".join(list(k)): v for k, v in ALL.items()}
    assert not any(a is sys.intern(a) for a in copies)
    assert facts(put(**copies)) == expected
    rest = {k: v for k, v in ALL.items() if k not in ("topic", "body")}
    assert facts(put("T", b"x", **rest)) == facts(put("T", body=b"x", **rest)) == expected


def test_defaults_are_those_of_the_signature(put):
    given = {k: p.default for k, p in inspect.signature(like_put).parameters.items() if p.default is not p.empty}
    one, other = put("T", b"x"), put("T", b"x", **given)
    assert {**facts(one), "born_timestamp": 0} == {**facts(other), "born_timestamp": 0}


@pytest.mark.parametrize(("args", "keywords", "said"), [
    ((), {}, "missing topic and body"), (("T",), {}, "missing body"), ((), {"body": b""}, "missing topic"),
    (("T", b"", 0), {}, "2 positional arguments"), (("T", b""), {"tag": "x"}, "unexpected keyword argument 'tag'"),
    (("T", b""), {"topic": "U"}, "multiple values for argument 'topic'"), (("T", b""), {"body": b""}, "multiple values")])
def test_what_no_function_takes(put, args, keywords, said):
    with pytest.raises(TypeError, match=said):
        put(*args, **keywords)


def test_it_is_a_method_of_stores_only():
    with pytest.raises(TypeError):
        MessageStore.put(object(), "T", b"x")


def test_arguments_are_given_back(put):
    """Borrowed, not kept: neither by a put nor by one that is refused."""
    body, tags = bytes(bytearray(b"body")), "".join(["ta", "gs"])
    before = sys.getrefcount(body), sys.getrefcount(tags)
    put("T", body, tags=tags)
    with pytest.raises(TypeError):
        put("T", body, tags=tags, nothing=1)
    assert (sys.getrefcount(body), sys.getrefcount(tags)) == before
