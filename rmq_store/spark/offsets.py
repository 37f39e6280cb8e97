"""What a stream's offset says beside positions, under the name "" that no broker has: {"brokers": ..., "topics": ...}.

A checkpoint of an earlier release has positions alone. Its stream continues, and takes the logs that it finds for those that it
read before: it cannot tell. From then on its offsets say of which logs they are. Pure functions, but for the files of a log.
"""
import logging
from collections.abc import Sequence
from typing import Any

from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.spark.identity import Identity, is_identity
from rmq_store.spark.options import ReadOptions, camel
from rmq_store.spark.positions import LogPositions

__all__ = ["Offsets", "identities", "marked", "places", "refuse_wider"]

log = logging.getLogger("rmq_store.spark")

Offsets = dict[str, Any]        # JSON data
_OWN = ""
_TOPICS = ("subscribe", "subscribe_pattern", "assign")


def places(offset: Offsets) -> dict[str, int]:
    """broker -> log offset."""
    return {name: at for name, at in offset.items() if name != _OWN}


def identities(offset: Offsets) -> dict[str, Identity]:
    """broker -> of which log its position is. Raises CorruptionError."""
    own = offset.get(_OWN, {})
    found = own.get("brokers", {}) if isinstance(own, dict) else None
    if not isinstance(found, dict) or not all(map(is_identity, found.values())):
        raise CorruptionError("the offset of a stream", None, "records that tell which logs it is of", str(own)[:100])
    return found


def marked(at: dict[str, int], before: Offsets, logs: Sequence[LogPositions], options: ReadOptions) -> Offsets:
    """An offset of these positions. What `before` says of a log holds as long as its position stays. Raises OSError."""
    known, stood = identities(before), places(before)
    found = dict(known)
    for p in logs:
        name = p.broker.name
        if name in at and (name not in known or at[name] != stood.get(name)):
            found[name] = p.identity(at[name])
            if name in stood and name not in known:
                log.warning("%s (broker %s): the checkpoint of an earlier release does not say which log it read: the one that "
                            "is there now is taken for it", p.broker.root, name)
    topics = _topics(options)
    return {**at, _OWN: {"brokers": found} | ({} if topics is None else {"topics": topics})}


def _topics(options: ReadOptions) -> dict[str, Any] | None:
    for name in _TOPICS:
        value = getattr(options, name)
        if value is not None:
            return {camel(name): value if isinstance(value, str) else sorted(map(_plain, value), key=str)}
    return None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def refuse_wider(offset: Offsets, options: ReadOptions) -> None:
    """Raises ConfigError where the options choose topics that an earlier run with this checkpoint did not: one position stands
    for the whole log, so their earlier messages would never be read. Fewer are fine. An offset without identities says nothing
    of topics."""
    if _OWN not in offset:
        return
    identities(offset)
    before, now = offset[_OWN].get("topics"), _topics(options)
    if before is None or before == now:
        return
    for name, value in (now or {}).items():
        if isinstance(value, list) and isinstance(before.get(name), list) and all(each in before[name] for each in value):
            return
    raise ConfigError(f"the checkpoint was written with {_said(before)}, this run has {_said(now)}: it would never read the "
                      "messages of added topics that lie before the checkpoint's place. Start a second stream with a "
                      "checkpoint of its own for these topics, or begin with a new checkpoint")


def _said(topics: dict[str, Any] | None) -> str:
    return "all topics" if topics is None else ", ".join(f"{name}={value}" for name, value in topics.items())
