"""Administration of topics, groups and offsets, as mqadmin asks for it: codes 17, 21, 43, 45, 200, 201, 202, 207, 208, 215,
222, 300, 351, 352 and 402 (RocketMQ: AdminBrokerProcessor)."""
import json
from typing import Any

from rmq_store.broker.codes import DEAD, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.pieces import named_table, offset_table
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.broker.sending import refuse_on_slave
from rmq_store.broker.topics import topic_problem
from rmq_store.remoting.frame import Frame
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.delay.service import delay_levels

__all__ = ["AdminTopics"]

RESET_CONSUMER_CLIENT_OFFSET = 220
QUEUES_MAX = 1 << 16        # of one topic
ATTRIBUTES_MAX = 256        # of one topic or group,
ATTRIBUTE_MAX = 4096        # and characters of a name or a value
_GROUP_FIELDS = ("brokerId", "consumeBroadcastEnable", "consumeEnable", "consumeFromMinEnable", "retryMaxTimes",
                 "retryQueueNums", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable")
_GROUP_FIELDS_5 = ("consumeMessageOrderly", "consumeTimeoutMinute", "groupSysFlag", "attributes")


class AdminTopics:
    """What changes is in its file when the answer goes out."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def processors(self) -> dict[int, Processor]:
        return {17: self._set_topic, 215: self._delete_topic, 21: self._topics, 351: self._topic, 202: self._topic_stats,
                200: self._set_group, 207: self._delete_group, 201: self._groups, 352: self._group, 43: self._offsets,
                45: self._delay_offsets, 402: self._modes, 208: self._consume_stats, 300: self._groups_of, 222: self._reset}

    # ---- topics

    def _set_topic(self, request: Request) -> Frame:
        core, name = self._core, request.text("topic")
        illegal = Code.INVALID_PARAMETER if core.modern else Code.SYSTEM_ERROR
        if problem := topic_problem(name):
            raise Refused(illegal, problem)
        if core.options["validateSystemTopicWhenUpdateTopic"] and name in core.topics.reserved:
            raise Refused(illegal, f"The topic[{name}] is conflict with system topic.")
        read, write = request.integer("readQueueNums", 4), request.integer("writeQueueNums", 4)
        perm = request.integer("perm", 6)
        if not (0 <= read <= QUEUES_MAX and 0 <= write <= QUEUES_MAX and 0 <= perm <= 7):
            raise Refused(illegal, f"queues {read} and {write}, perm {perm}: 0 to {QUEUES_MAX} queues, perm 0 to 7")
        fields: dict[str, Any] = {
            "readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": request.integer("topicSysFlag", 0),
            "order": request.flag("order"), "topicFilterType": request.ext.get("topicFilterType") or "SINGLE_TAG"}
        if core.modern and (text := request.ext.get("attributes")):
            before = (core.store.topic_table.get(name) or {}).get("attributes")
            fields["attributes"] = _changed_attributes(before if isinstance(before, dict) else {}, text)
        core.topics.set(name, **fields)
        core.store.topic_table.flush()
        return request.answer()

    def _delete_topic(self, request: Request) -> Frame:
        core, name = self._core, request.text("topic")
        illegal = Code.INVALID_PARAMETER if core.modern else Code.SYSTEM_ERROR
        if problem := topic_problem(name):
            raise Refused(illegal, problem)
        if name in core.topics.reserved:
            raise Refused(illegal, f"The topic[{name}] is conflict with system topic.")
        refuse_on_slave(core)
        core.topics.remove(name)
        core.store.topic_table.flush()
        return request.answer()

    def _topics(self, request: Request) -> Frame:
        return named_table(request, self._core.topics.content(), "topicConfigTable", "Topic")

    def _topic(self, request: Request) -> Frame:
        name = request.text("topic")
        entry = self._core.store.topic_table.get(name)
        if entry is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name:.255}")
        return request.answer(body=body_of(entry))

    def _topic_stats(self, request: Request) -> Frame:
        core, store, name = self._core, self._core.store, request.text("topic")
        topic = core.topics.find_to_read(name)
        if topic is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"topic[{name:.255}] not exist")
        rows = []
        for queue in range(topic.queues):
            low, high = max(store.min_offset(name, queue), 0), store.max_offset(name, queue)
            rows.append((name, queue, {"lastUpdateTimestamp": self._time_at(name, queue, high - 1), "maxOffset": high,
                                       "minOffset": low}))
        return request.answer(body=self._by_queue(rows))

    def _time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message, 0 where there is none."""
        store = self._core.store
        entry = store.raw_entry(topic, queue_id, offset) if offset >= 0 else None
        message = store.message_at(entry[0]) if entry is not None else None
        if message is None and 0 <= offset < store.max_offset(topic, queue_id):     # a compaction log may have it, or the next
            message = next(iter(store.get(topic, queue_id, offset, 1)), None)
        return 0 if message is None else message.store_timestamp

    def _by_queue(self, rows: list[tuple[str, int, Any]], **more: object) -> bytes:
        """A table whose keys are queues, as fastjson writes it; no JSON of others has such keys."""
        name = json.dumps(self._core.options["brokerName"])
        table = ",".join(f'{{"brokerName":{name},"queueId":{queue},"topic":{json.dumps(topic)}}}:'
                         f'{json.dumps(value, separators=(",", ":"))}' for topic, queue, value in rows)
        first = "".join(f"{json.dumps(key)}:{json.dumps(value)}," for key, value in more.items())
        return f'{{{first}"offsetTable":{{{table}}}}}'.encode()

    # ---- groups

    def _set_group(self, request: Request) -> Frame:
        data, core = request.json(), self._core
        name = data.get("groupName")
        if not isinstance(name, str) or topic_problem(name):
            raise Refused(Code.INVALID_PARAMETER if core.modern else Code.SYSTEM_ERROR, f"the group name is {name!r:.140}")
        before = core.store.group_table.get(name) or {}
        fields = {}
        for field in (*_GROUP_FIELDS, *(_GROUP_FIELDS_5 if core.modern else ())):
            value = data.get(field)
            if field == "attributes":
                value = _as_attributes(before.get(field), value)
            if value is not None and isinstance(value, bool | int | dict):
                fields[field] = value
        core.groups.set(name, **fields)
        core.store.group_table.flush()
        return request.answer()

    def _delete_group(self, request: Request) -> Frame:
        core, name = self._core, request.text("groupName")
        core.groups.remove(name)
        core.store.group_table.flush()
        if request.flag("cleanOffset"):
            core.store.offsets.remove(name)
            core.store.offsets.flush()
        return request.answer()

    def _groups(self, request: Request) -> Frame:
        return named_table(request, self._core.groups.content(), "subscriptionGroupTable", "Group")

    def _group(self, request: Request) -> Frame:
        name = request.text("group")
        entry = self._core.store.group_table.get(name)
        if entry is None:
            raise Refused(Code.GROUP_NOT_EXIST, f"No group in this broker. group: {name:.255}")
        return request.answer(body=body_of(entry))

    # ---- offsets

    def _offsets(self, request: Request) -> Frame:
        table = {f"{topic}@{group}": {str(queue): offset for queue, offset in queues.items()}
                 for (topic, group), queues in self._core.store.offsets.table().items()}
        content: dict[str, Any] = {"offsetTable": table}
        if self._core.modern:       # without it a slave of 5.x fails before it writes them
            content["dataVersion"] = {"counter": 0, "stateVersion": 0, "timestamp": self._core.started_ms}
        return offset_table(request, content)

    def _delay_offsets(self, request: Request) -> Frame:
        """With bare numbers as keys: a slave writes the text into delayOffset.json as it is."""
        store = self._core.store
        rows = ",".join(f"{level.level}:{level.offset}" for level in delay_levels(store, store._delay, store._files))
        return request.answer(body=f'{{"offsetTable":{{{rows}}}}}'.encode())

    def _modes(self, request: Request) -> Frame:
        """Which groups pull and which pop: this broker has no POP, and hands on what another one left."""
        if not self._core.modern:
            raise Refused(Code.NOT_SUPPORTED, " request type 402 not supported")
        file = ConfigFile(self._core.store._files, self._core.store.path, "messageRequestMode.json")
        return request.answer(body=body_of(file.load(lambda found: dict(found)) or {"messageRequestModeMap": {}}))

    def _groups_of(self, request: Request) -> Frame:
        topic = request.text("topic")
        stored = {group for name, group in self._core.store.offsets.table() if name == topic}
        return request.answer(body=body_of({"groupList": sorted({*self._core.clients.groups_of(topic), *stored})}))

    def _consume_stats(self, request: Request) -> Frame:
        core, store, group = self._core, self._core.store, request.text("consumerGroup")
        asked = request.ext.get("topic", "")
        known = store.offsets.topics(group)
        rows = []
        for name in [asked] if asked else known:
            topic = core.topics.find_to_read(name)
            if topic is None or name.startswith(DEAD):
                continue
            online = core.clients.group(group)
            if online is not None and name not in online.subscriptions and not asked:
                continue
            for queue in range(topic.read):
                high, offset = store.max_offset(name, queue), max(store.offsets.query(group, name, queue), 0)
                value = {"brokerOffset": high, "consumerOffset": offset,
                         "lastTimestamp": self._time_at(name, queue, offset - 1)}
                rows.append((name, queue, value | {"pullOffset": offset} if core.modern else value))
        items = [store.stats_item("GROUP_GET_NUMS", f"{name}@{group}") for name in dict.fromkeys(row[0] for row in rows)]
        tps = sum(item["statsMinute"]["tps"] for item in items if item is not None)
        return request.answer(body=self._by_queue(rows, consumeTps=tps))

    def _reset(self, request: Request) -> Frame:
        """Sets the offsets of a group, and tells its members to begin there. Where some queues have no offset, or nobody is
        connected, 4.9 refuses, and 5.x resets every queue (resetOffsetInner)."""
        core, store = self._core, self._core.store
        name, group, time_ms = request.text("topic"), request.text("group"), request.long("timestamp")
        topic, force = core.topics.find_to_read(name), request.flag("isForce")
        if topic is None:
            raise Refused(Code.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker. topic={name:.255}")
        before = {queue: store.offsets.query(group, name, queue) for queue in range(topic.write)}
        members = core.clients.consumers(group)
        known = members or core.groups.get(group) is not None or any(offset >= 0 for offset in before.values())
        if not known or (not core.modern and any(offset < 0 for offset in before.values())):
            raise Refused(Code.SYSTEM_ERROR, f"THe consumer group <{group:.255}> not exist")
        if not members and not core.modern:
            raise Refused(Code.CONSUMER_NOT_ONLINE, f"Consumer not online, so can not reset offset, Group: {group:.255} "
                          f"Topic: {name} Timestamp: {time_ms}")
        rows = [(name, queue, self._reset_to(name, queue, time_ms, offset, force)) for queue, offset in before.items()]
        for _, queue, offset in rows:
            store.offsets.commit(group, name, queue, offset)
        body = self._by_queue(rows)
        for member in members:
            core.push(member.connection, RESET_CONSUMER_CLIENT_OFFSET,
                      {"topic": name, "group": group, "timestamp": str(time_ms)}, body)
        return request.answer(body=body)

    def _reset_to(self, topic: str, queue: int, time_ms: int, before: int, force: bool) -> int:
        """before: the offset of the group, -1 for none."""
        store = self._core.store
        high = store.max_offset(topic, queue)
        found = high if time_ms < 0 else store._offset_by_time(topic, queue, time_ms) if high > 0 else 0
        return max(found, 0) if force or before < 0 or found < before else before


def _changed_attributes(before: dict[str, str], text: str) -> dict[str, str]:
    """"+name=value,-name" applied to attributes (RocketMQ: AttributeParser)."""
    after = dict(before)
    for change in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = change[1:].partition("=")
        if change[0] == "+" and equals and name:
            after[name] = value
        elif change[0] == "-" and not equals and name:
            after.pop(name, None)
        else:
            raise Refused(Code.INVALID_PARAMETER, f"attribute {change!r:.80} is neither +name=value nor -name")
    return _bounded(after)


def _as_attributes(before: object, given: object) -> dict[str, str] | None:
    """As a client sends them in a body: {"+name": "value", "-name": ""}."""
    if not isinstance(given, dict):
        return None
    after = dict(before) if isinstance(before, dict) else {}
    for name, value in given.items():
        if name.startswith("-"):
            after.pop(name[1:], None)
        else:
            after[name.removeprefix("+")] = str(value)
    return _bounded(after)


def _bounded(attributes: dict[str, str]) -> dict[str, str]:
    longest = max(map(len, (*attributes, *attributes.values())), default=0)
    if len(attributes) > ATTRIBUTES_MAX or longest > ATTRIBUTE_MAX:
        raise Refused(Code.INVALID_PARAMETER, f"{len(attributes)} attributes with up to {longest} characters: the limits are "
                      f"{ATTRIBUTES_MAX} and {ATTRIBUTE_MAX}")
    return attributes
