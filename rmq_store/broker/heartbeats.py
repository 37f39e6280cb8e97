"""What clients say of themselves: codes 34, 35, 38, 46, 203 and 204; push 40 to the members of a group that changed (RocketMQ:
ClientManageProcessor, ConsumerManageProcessor, DefaultConsumerIdsChangeListener)."""
import time
from collections.abc import Generator, Iterator
from typing import Any

from rmq_store.broker.clients import TAG, Client, Subscription, subscription_of
from rmq_store.broker.codes import RETRY, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.notices import Notices
from rmq_store.broker.request import LONG, Refused, Request, body_of
from rmq_store.errors import FilterIllegal
from rmq_store.filter._program import SqlFilter
from rmq_store.remoting.frame import Frame

__all__ = ["Heartbeats"]

NOTIFY_CONSUMER_IDS_CHANGED = 40
SUBSCRIPTIONS_MAX = 4096        # of one group
GROUPS_OF_ONE_MAX = 1024        # of one heartbeat
SUBSCRIPTIONS_OF_ONE_MAX = 16384     # of one heartbeat,
TEXT_OF_ONE_MAX = 1 << 20      # characters of their topics and expressions
NAME_MAX = 255
CLIENT_ID_MAX = 1024
STEP_S = 0.005          # of a heartbeat, before other clients are served


class Heartbeats:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._notices = Notices(self._told_of, self._push)
        self._filtered: set[str] = set()        # groups that have a SQL92 filter in config/consumerFilter.json

    def processors(self) -> dict[int, Processor]:
        return {34: self._heartbeat, 35: self._unregister, 38: self._consumer_list, 46: self._check_config}

    def slow_processors(self) -> dict[int, Processor]:
        """Whose answer can be long."""
        return {203: self._consumer_connections, 204: self._producer_connections}

    def notify(self, group: str) -> None:
        """A consumer group changed: every member is told, at once or soon."""
        self._register_filters(group)
        self._notices.changed(group)

    def stop(self) -> None:
        self._notices.stop()

    def _told_of(self, group: str) -> list[Client]:
        """Who is told that the group changed."""
        config = self._core.groups.get(group)
        if not self._core.options["notifyConsumerIdsChangedEnable"] or (config is not None and not config.notify):
            return []
        return self._core.clients.consumers(group)

    def _push(self, client: Client, group: str) -> None:
        self._core.push(client.connection, NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def _heartbeat(self, request: Request) -> Generator[Frame | None, None, None]:
        """In steps: one that names many groups lets other clients' requests in between."""
        generation = self._core.front.generation()
        data = request.json()
        frame = request.frame
        client = Client(request.connection, _string(data.get("clientID"))[:CLIENT_ID_MAX], frame.language[:NAME_MAX],
                        frame.version, time.monotonic(), request.account.access_key if request.account is not None else "")
        producers, consumers = _list(data.get("producerDataSet")), _list(data.get("consumerDataSet"))
        if len(producers) + len(consumers) > GROUPS_OF_ONE_MAX:
            raise Refused(Code.SYSTEM_ERROR, f"the heartbeat names more than {GROUPS_OF_ONE_MAX} groups")
        subscriptions = [one for consumer in consumers for one in _list(consumer.get("subscriptionDataSet"))]
        text = sum(len(_string(one.get(name))) for one in subscriptions for name in ("topic", "subString"))
        if len(subscriptions) > SUBSCRIPTIONS_OF_ONE_MAX or text > TEXT_OF_ONE_MAX:
            raise Refused(Code.SYSTEM_ERROR, f"the heartbeat names {len(subscriptions)} subscriptions with {text} characters, "
                          f"the limits are {SUBSCRIPTIONS_OF_ONE_MAX} and {TEXT_OF_ONE_MAX}: connect with a client for each "
                          "part of the groups")
        whole = True
        for producer in producers:
            if 0 < len(group := _string(producer.get("groupName"))) <= NAME_MAX:
                whole = self._core.clients.add_producer(group, client) and whole
        until = time.monotonic() + STEP_S
        for consumer in consumers:
            told: list[Subscription] = []
            for one in self._told(consumer):
                told.append(one)
                if time.monotonic() >= until:
                    yield None
                    until = time.monotonic() + STEP_S
            self._register(client, consumer, told)
            if time.monotonic() >= until:
                yield None
                until = time.monotonic() + STEP_S
        if whole:       # it would change nothing if it came again
            self._core.front.remember(request.connection.id, frame.body, frame.version, generation)
        yield request.answer()

    def _register(self, client: Client, data: dict[str, Any], told: list[Subscription]) -> None:
        name = _string(data.get("groupName"))
        config = self._core.groups.find(name)
        if config is None:
            return
        if config.retry_queues > 0:
            self._core.topics.create(RETRY + name, config.retry_queues, sys_flag=1 if data.get("unitMode") is True else 0)
        before = {topic: sub.text for topic, sub in self._filters_of(name).items()}
        how = tuple(_string(data.get(key)) for key in ("consumeType", "messageModel", "consumeFromWhere"))
        self._core.clients.add_consumer(name, client, how,          # type: ignore[arg-type]
                                        None if data.get("withoutSub") is True else told)
        if before != {topic: sub.text for topic, sub in self._filters_of(name).items()}:
            self._register_filters(name)

    def _filters_of(self, group: str) -> dict[str, Subscription]:
        """The subscriptions by SQL92 of a group that is connected."""
        found = self._core.clients.group(group)
        return {} if found is None else {topic: s for topic, s in list(found.subscriptions.items()) if s.sql is not None}

    def _register_filters(self, group: str) -> None:
        """Tells the store which filters a group has now: it may keep bit maps for them. The file is written in a worker."""
        if not self._filters_of(group) and group not in self._filtered:
            return
        self._filtered.add(group)

        def register() -> None:
            filters = self._core.store.consumer_filters
            if self._core.clients.group(group) is None:
                filters.unregister(group)
            else:
                filters.register_group(group, {topic: sub.sql for topic, sub in self._filters_of(group).items()})

        self._core.workers.submit(register)

    def _told(self, data: dict[str, Any]) -> Iterator[Subscription]:
        """The subscriptions of a group in a heartbeat. One that is known is not read again: heartbeats come every 30 s."""
        group = _string(data.get("groupName"))
        if data.get("withoutSub") is True or self._core.groups.find(group) is None:
            return
        for one in _list(data.get("subscriptionDataSet"))[:SUBSCRIPTIONS_MAX]:
            topic, version = _string(one.get("topic")), one.get("subVersion")
            version = version if isinstance(version, int) and -LONG <= version < LONG else 0
            known = self._core.clients.subscription(group, topic)
            if known is None or known.version < version:
                try:
                    known = subscription_of(topic, _string(one.get("subString")), _string(one.get("expressionType")), version)
                except FilterIllegal:       # 46 has told the client
                    continue
            yield known

    def _unregister(self, request: Request) -> Frame:
        ext = request.ext
        self._core.clients.remove(request.connection, ext.get("producerGroup", ""), ext.get("consumerGroup", ""))
        self._core.front.forget(request.connection.id)
        return request.answer()

    def _consumer_list(self, request: Request) -> Frame:
        group = request.text("consumerGroup")
        ids = list(dict.fromkeys(client.id for client in self._core.clients.consumers(group)))
        if not ids:
            return request.answer(Code.SYSTEM_ERROR, f"no consumer for this group, {group:.255}")
        return request.answer(body=body_of({"consumerIdList": ids}))

    def _check_config(self, request: Request) -> Frame:
        data = request.json()
        found = data.get("subscriptionData")
        if not isinstance(found, dict) or (found.get("expressionType") or TAG) == TAG:
            return request.answer()
        kind = _string(found.get("expressionType"))
        if kind != "SQL92" or not self._core.options["enablePropertyFilter"]:
            raise Refused(Code.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind:.40}")
        try:
            SqlFilter(_string(found.get("subString")))
        except FilterIllegal as error:
            raise Refused(Code.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return request.answer()

    def _consumer_connections(self, request: Request) -> Frame:
        name = request.text("consumerGroup")
        group = self._core.clients.group(name)
        if group is None:
            raise Refused(Code.CONSUMER_NOT_ONLINE, f"the consumer group[{name:.255}] not online")
        return request.answer(body=body_of({
            "connectionSet": [_connection(client) for client in self._core.clients.consumers(name)],
            "consumeFromWhere": group.start, "consumeType": group.type, "messageModel": group.model,
            "subscriptionTable": {topic: _shown(sub) for topic, sub in list(group.subscriptions.items())}}))

    def _producer_connections(self, request: Request) -> Frame:
        name = request.text("producerGroup")
        clients = self._core.clients.producers(name)
        if not clients:
            raise Refused(Code.SYSTEM_ERROR, f"the producer group[{name:.255}] not exist")
        return request.answer(body=body_of({"connectionSet": [_connection(client) for client in clients]}))


def _connection(client: Client) -> dict[str, object]:
    return {"clientAddr": client.connection.peer, "clientId": client.id, "language": client.language,
            "version": client.version}


def _shown(sub: Subscription) -> dict[str, object]:
    tags = sorted({t.strip() for t in sub.text.split("||") if t.strip()}) if sub.kind == TAG and sub.tags is not None else []
    return {"classFilterMode": False, "codeSet": [], "expressionType": sub.kind, "subString": sub.text,
            "subVersion": sub.version, "tagsSet": tags, "topic": sub.topic}


def _string(value: object) -> str:
    """A text that an answer can carry; "" for anything else. JSON can name half a character, which UTF-8 cannot."""
    try:
        return value if isinstance(value, str) and value.encode() else ""
    except UnicodeEncodeError:
        return ""


def _list(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
