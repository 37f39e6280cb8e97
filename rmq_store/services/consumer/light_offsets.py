"""Offsets where light queues are on: config/lmqConsumerOffset.json in the place of consumerOffset.json (RocketMQ:
LmqConsumerOffsetManager, with enableLmq).

    {"lmqOffsetTable":{"%LMQ%x@%LMQ%group":next offset},"offsetTable":{"topic@group":{queueId:next offset}}}

Offsets of a group %LMQ%... are in the first table, because such a group reads light queues, which have queue id 0 alone. All
else is as in consumerOffset.json, which is read where there is no lmqConsumerOffset.json yet, so that no group begins anew.
"""
from typing import TYPE_CHECKING, Any

from rmq_store.errors import ArgumentIllegal
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.offsets import ConsumerOffsets, Table

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

__all__ = ["LMQ_PREFIX", "LmqConsumerOffsets", "offset_in"]

LMQ_PREFIX = "%LMQ%"
_KEY = "lmqOffsetTable"


class LmqConsumerOffsets(ConsumerOffsets):
    """ConsumerOffsets in that file. before: consumerOffset.json, which is only read. Thread-safety as there."""

    def __init__(self, file: ConfigFile, before: ConfigFile, **more: Any) -> None:
        self._before = before
        super().__init__(file, **more)

    def _is_light(self, key: tuple[str, str]) -> bool:
        return any(name.startswith(LMQ_PREFIX) for name in key)

    def _load(self) -> None:
        self._fill(self._file.load(self._take) or self._before.load(self._take))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """As ConsumerOffsets.commit. Raises ValueError as well for a queue other than 0 of a group %LMQ%..., which the file
        cannot hold."""
        if isinstance(group, str) and group.startswith(LMQ_PREFIX) and queue_id != 0:
            raise ArgumentIllegal(f"queue_id is {queue_id!r}, and the group {group!r} reads light queues, which have queue 0 "
                                  "alone: give 0, or a group of another name")
        super().commit(group, topic, queue_id, offset)

    def _tables(self, table: dict[str, dict[int, int]]) -> dict[str, Any]:
        light = {key: queues[0] for key, queues in table.items() if _is_light(key) and list(queues) == [0]}
        return {_KEY: light, "offsetTable": {key: queues for key, queues in table.items() if key not in light}}

    def _take(self, content: Any) -> tuple[Table, dict[str, Any]]:
        light = {key: {"0": offset} for key, offset in content.get(_KEY, {}).items()}
        return super()._take({name: value for name, value in content.items() if name != _KEY}
                             | {"offsetTable": content.get("offsetTable", {}) | light})


def _is_light(key: str) -> bool:
    return key.partition("@")[2].startswith(LMQ_PREFIX)


def offset_in(message: "Message", topic: str) -> int | None:
    """The queue offset of a message in the queue of `topic` that it was read from, also where that is a light queue: its own
    queue offset is another one. None where the record does not say it."""
    if message.topic == topic or not topic.startswith(LMQ_PREFIX):
        return message.queue_offset
    names = message.properties.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    if topic in names and len(offsets) == len(names) and (place := offsets[names.index(topic)]).isdecimal():
        return int(place)
    return None
