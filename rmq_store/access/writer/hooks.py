"""Put hooks: what they see of a message, how they are asked, and how they refuse. RocketMQ: hook.PutMessageHook, HookUtils.

A hook is called in the thread that puts, before the message is checked and stored, with the GIL. It lets the message pass,
changes its properties, or refuses it. Where no hook was added, nothing here runs.
"""
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rmq_store.access.writer._arguments import joined_keys
from rmq_store.base.io.callbacks import refuse_unrun
from rmq_store.codec.layout import Compat
from rmq_store.codec.properties import decode_properties, encode_properties
from rmq_store.codec.timer import with_delay
from rmq_store.errors import MessageIllegal, PutError, PutRefused
from rmq_store.status import PutStatus

__all__ = ["PutHook", "PutMessage", "ask", "asked_batch", "asked_many"]


class PutMessage:
    """A message that is about to be put, as a put hook sees it. It is valid during the call.

    topic: str, queue_id: int, body: bytes-like, flag, sys_flag, reconsume_times, prepared_transaction_offset: int,
    born_timestamp: int or None, born_host: str or None: the arguments of the put. batch: True for the whole of a put_batch;
    `body` is then the encoded batch, and the properties are those of the batch. Only properties can be changed. The store
    checks the message after the hooks, so an argument may still be one that it refuses.
    RocketMQ: MessageExt, as PutMessageHook.executeBeforePutMessage gets it.
    """

    __slots__ = ("_compat", "_given", "_known", "_raw", "batch", "body", "born_host", "born_timestamp", "changed", "flag",
                 "prepared_transaction_offset", "queue_id", "reconsume_times", "sys_flag", "topic")
    topic: str
    queue_id: int
    body: bytes | bytearray | memoryview
    batch: bool
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int
    changed: bool
    _compat: Compat
    _given: tuple[Any, int | None, Any, Any, str | None, str | None]
    _known: dict[str, str] | None
    _raw: bytes | None

    def __init__(self, compat: Compat, *, topic: str, queue_id: int, body: Any, tags: str | None = None,
                 keys: str | None = None, properties: Any = None, delay_level: int | None = None, deliver_at: Any = None,
                 delay: Any = None, batch: bool = False, flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
                 born_host: str | None = None, reconsume_times: int = 0, prepared_transaction_offset: int = 0) -> None:
        self._set(topic=topic, queue_id=queue_id, body=body, batch=batch, flag=flag, sys_flag=sys_flag, _compat=compat,
                  born_timestamp=born_timestamp, born_host=born_host, reconsume_times=reconsume_times, changed=False,
                  prepared_transaction_offset=prepared_transaction_offset, _known=None, _raw=None,
                  _given=(properties, delay_level, deliver_at, delay, tags, keys))

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: a put hook changes properties only, by put_property and clear_property")

    def __repr__(self) -> str:
        return f"PutMessage({self.topic!r}, queue_id={self.queue_id}, properties={dict(self._map())!r})"

    def _map(self) -> dict[str, str]:
        known = self._known
        if known is None:
            properties, level, deliver_at, delay, tags, keys = self._given
            if (level, deliver_at, delay) != (None, None, None):
                properties = with_delay(properties, level, deliver_at, delay)
            known = decode_properties(encode_properties(properties, compat=self._compat))
            for name, text in (("TAGS", tags), ("KEYS", keys)):
                if text is not None and text != "":
                    encode_properties({name: text}, compat=self._compat)    # as the put checks where nothing changes
                    if name in known:
                        raise MessageIllegal(f"{name.lower()} and the property {name} are two names for one field: give one "
                                             "of them")
                    known[name] = text
            self._set(_known=known)
        return known

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, with RocketMQ's names for tags (TAGS), keys (KEYS), the delay level (DELAY) and the time of
        delivery (TIMER_DELIVER_MS, TIMER_DELAY_MS). A view that cannot be changed. Raises MessageIllegal if the properties of
        the put cannot be stored."""
        return MappingProxyType(self._map())

    def put_property(self, name: str, value: str) -> None:
        """Sets a property. Raises MessageIllegal for a name or value that a record cannot hold. RocketMQ: putProperty."""
        encode_properties({name: value}, compat=self._compat)
        self._map()[name] = value
        self._set(changed=True, _raw=None)

    def clear_property(self, name: str) -> None:
        """Removes a property, if it is there. RocketMQ: clearProperty."""
        if self._map().pop(name, None) is not None:
            self._set(changed=True, _raw=None)

    def encoded(self) -> bytes:
        """The properties as a record has them: bytes."""
        if self._raw is not None:
            return self._raw
        # Values out of stored bytes may hold 0x01, which a mapping of a put may not.
        text = "\x02".join(f"{name}\x01{value}" for name, value in self._map().items())
        return (text + "\x02" if text and self._compat == "5.x" else text).encode()

    def replace(self, raw: bytes) -> None:
        """Sets all properties, encoded: for hooks in C."""
        self._set(_known=decode_properties(raw), _raw=raw, changed=True)


PutHook = Callable[[PutMessage], object]


def ask(hooks: Sequence[tuple[str, PutHook]], message: PutMessage) -> None:
    """Calls the hooks in their order; the first that refuses ends it. Raises PutRefused; and PutError, which a hook may raise
    to refuse in its own words. No other error of this library passes: StoreClosed, of another store, would tell the threads of
    this one that it closes."""
    for name, hook in hooks:
        try:
            answer = hook(message)
            if answer is not None:
                refuse_unrun("hook", hook, answer)
        except PutError:
            raise
        except Exception as error:      # of whatever kind: it is the program's code, and the message is not stored
            raise PutRefused(name, f"it raised {type(error).__name__}: {error}") from error
        reason = ""
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, reason = answer
        if answer is None or answer is PutStatus.PUT_OK:
            continue
        if not isinstance(answer, PutStatus) or answer.stored:
            raise PutRefused(name, f"it returned {answer!r}, not a PutStatus of a message that is not stored")
        raise PutRefused(name, str(reason), answer)


def asked_many(hooks: Sequence[tuple[str, PutHook]], compat: Compat, messages: list[Any], common: dict[str, Any]) -> list[Any]:
    """The messages of a put_many as the hooks want them. All are asked for before the first is stored."""
    found = []
    for message in messages:
        own = {"body": message}
        if hasattr(message, "keys") and not isinstance(message, bytes | bytearray | memoryview):
            own = dict(message)
        if own.get("keys") is not None:
            own["keys"] = joined_keys(own["keys"])
        shown = common | own
        shown.pop("light_queues", None)     # names, not properties yet: as a hook of put, it does not see them
        if "body" not in own or shown.keys() - common.keys() != {"body"}:
            found.append(message)       # put_many refuses it, and names what is wrong
            continue
        asked = PutMessage(compat, **shown)
        ask(hooks, asked)
        if asked.changed:
            own |= {"properties": asked.encoded(), "tags": None, "keys": None}
        found.append(own if asked.changed or own.get("keys") is not None else message)
    return found


def asked_batch(hooks: Sequence[tuple[str, PutHook]], compat: Compat, given: dict[str, Any]) -> Any:
    """The properties of a put_batch as the hooks want them."""
    asked = PutMessage(compat, batch=True, **given)
    ask(hooks, asked)
    return asked.encoded() if asked.changed else given["properties"]
