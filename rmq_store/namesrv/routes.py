"""The table of a name server: brokers, their topics, and the answers to requests (RocketMQ: RouteInfoManager, KVConfigManager).

One thread uses an object. Nothing is on a disk: brokers register again every 30 s. What takes long works in steps.
"""
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from rmq_store.namesrv.bodies import Refused, Told, body_of, loads, topics_of_compressed, topics_of_json
from rmq_store.remoting.frame import SYSTEM_ERROR, Frame, fitting

__all__ = ["Refused", "Routes", "Steps"]

Steps = Generator[None, None, Frame]        # a request that is not done; it returns the answer

BROKERS_MAX = 1024
TOPICS_MAX = 200_000            # topics of all brokers together
NAME_MAX = 255                  # characters of a topic, and of what a broker says of itself
INT = 1 << 31
SMALL_BODY_MAX = 1 << 16        # bytes of any other body
VERSION_MAX = 4096              # bytes of a dataVersion
KV_MAX = 10_000
KV_BYTES_MAX = 4 << 20          # of all KV entries, as JSON: answers to clients and registrations carry them
STEP_S = 0.005          # of a request, before other connections are served
NAMES_AT_ONCE = 1000    # in a step that makes a list of topics
SUCCESS, NOT_SUPPORTED, TOPIC_NOT_EXIST, QUERY_NOT_FOUND = 0, 3, 17, 22


class Broker:
    """One broker process: a master (id 0) or a slave, and the connection on which it registered."""

    __slots__ = ("address", "channel", "cluster", "ha", "id", "name", "promised", "topics", "version")

    def __init__(self, cluster: str, name: str, id: int, address: str, ha: str, channel: object, version: Any = None,
                 topics: Mapping[str, dict[str, Any]] | None = None,
                 promised: Callable[[str], dict[str, Any] | None] = lambda topic: None) -> None:
        """promised: a topic that it makes when it is used."""
        self.cluster, self.name, self.id, self.address, self.ha, self.channel = cluster, name, id, address, ha, channel
        self.version, self.topics, self.promised = version, {} if topics is None else topics, promised


class Routes:
    """Answers requests by their code. An unknown code is answered with 3, a request that lacks a field with 1."""

    def __init__(self, own: Callable[[object], Broker] | None = None) -> None:
        """own: the broker in whose process this name server runs, as the peer of a connection reaches it."""
        self._own = own
        self._brokers: dict[tuple[str, int], Broker] = {}
        self._kv: dict[tuple[str, str], str] = {}
        self._kv_bytes = 0
        self._list_of_all: bytes | None = None      # of topics, as long as it holds
        self._changes = 0
        self._row: list[Steps] = []                 # what takes long, in the order in which it came
        self._processors: dict[int, Callable[[object, Frame], Frame | Steps]] = {
            100: self._put_kv, 101: self._get_kv, 102: self._delete_kv, 103: self._register, 104: self._unregister,
            105: self._route, 106: self._cluster, 206: self._topics, 216: self._delete_topic, 219: self._list_kv,
            224: self._topics_of_cluster, 322: self._query_version}

    def answer(self, channel: object, frame: Frame) -> Frame | Steps:
        """The answer to a request of that connection; a generator if it takes long: it returns the answer, and other
        connections may be served where it yields."""
        processor = self._processors.get(frame.code)
        if processor is None:
            return frame.answer(NOT_SUPPORTED, f" request type {frame.code} not supported")
        if self._own is not None:
            broker = self._own(channel)
            self._brokers[broker.name, broker.id] = broker
        steps = self._answered(processor, channel, frame)
        try:
            next(steps)             # most need no second one
        except StopIteration as end:
            return end.value        # type: ignore[no-any-return]
        return steps

    def _answered(self, processor: Callable[[object, Frame], Frame | Steps], channel: object, frame: Frame) -> Steps:
        try:
            answer = processor(channel, frame)
            return fitting(answer if isinstance(answer, Frame) else (yield from self._alone(answer)))
        except KeyError as error:
            return frame.answer(SYSTEM_ERROR, f"the request lacks the field {error}")
        except Refused as error:
            return frame.answer(SYSTEM_ERROR, str(error))

    def _alone(self, steps: Steps) -> Steps:
        """What takes long is done one after the other: it has memory for one, and a broker's registrations keep their order."""
        self._row.append(steps)
        try:
            while self._row[0] is not steps:
                yield
            return (yield from steps)
        finally:
            self._row.remove(steps)

    def gone(self, channel: object) -> None:
        """A connection has ended: the brokers that registered on it last are forgotten."""
        stay = {key: b for key, b in self._brokers.items() if b.channel is not channel}
        if len(stay) < len(self._brokers):
            self._brokers = stay
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._list_of_all = None

    def _register(self, channel: object, frame: Frame) -> Steps:
        ext = frame.ext
        broker_id = self._number(ext["brokerId"])
        crc = ext.get("bodyCrc32", "0")
        if crc != "0" and self._number(crc) != zlib.crc32(frame.body) & 0x7FFFFFFF:
            raise Refused("crc32 not match")
        key = (ext["brokerName"], broker_id)
        said = ext["clusterName"], key[0], ext["brokerAddr"], ext.get("haServerAddr", "")
        longest = max(said, key=len)
        if len(longest) > NAME_MAX:
            raise Refused(f"{longest:.40}... has {len(longest)} characters: names and addresses have at most {NAME_MAX}")
        broker = Broker(said[0], key[0], broker_id, said[2], said[3], channel)
        reader = topics_of_compressed if ext.get("compressed") == "true" else topics_of_json
        told, version = (yield from self._read(broker.name, reader(frame.body))) if frame.body else ({}, None)
        if (before := self._brokers.get(key)) is not None:
            broker.topics, broker.version = dict(before.topics), before.version
        elif len(self._brokers) >= BROKERS_MAX:
            raise Refused(f"more than {BROKERS_MAX} brokers")
        if frame.body:
            self._take(broker, told, version)
        if before is None or before.cluster != broker.cluster or told:
            self._changed()
        self._brokers[key] = broker
        master = self._brokers.get((broker.name, 0))
        fields = {"haServerAddr": master.ha, "masterAddr": master.address} if broker_id and master else {}
        order = {key: value for (space, key), value in self._kv.items() if space == "ORDER_TOPIC_CONFIG"}
        # a broker takes an empty table as "no topic is ordered", so without one there is no body
        return frame.answer(ext=fields, body=body_of({"table": order}) if order else b"")

    @staticmethod
    def _read(broker: str, topics: Iterator[Told | None]) -> Generator[None, None, tuple[dict[str, dict[str, Any]], Any]]:
        """The topics of a body, and its dataVersion."""
        found: dict[str, dict[str, Any]] = {}
        until, rows = time.monotonic() + STEP_S, 0
        for told in topics:
            if time.monotonic() >= until:
                yield
                until = time.monotonic() + STEP_S
            if told is None:
                continue
            name, config = told
            if name is None:
                return found, config
            numbers = [config.get(n, 0) for n in ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")] \
                if isinstance(config, dict) else [None]
            if len(name) > NAME_MAX:
                raise Refused(f"topic {name:.40}... has {len(name)} characters: a name has at most {NAME_MAX}")
            if not all(type(n) is int and 0 <= n < INT for n in numbers):
                raise Refused(f"the configuration of topic {name:.127} is not one")
            found[name] = {"brokerName": broker, "readQueueNums": numbers[0], "writeQueueNums": numbers[1], "perm": numbers[2],
                           "topicSysFlag": numbers[3]}
            rows += 1
            if rows > TOPICS_MAX:       # also of one name
                raise Refused(f"more than {TOPICS_MAX} topics")
        raise AssertionError("the end has no name")

    def _take(self, broker: Broker, told: dict[str, dict[str, Any]], version: Any) -> None:
        if (size := len(body_of(version))) > VERSION_MAX:
            raise Refused(f"dataVersion has {size} bytes: it has at most {VERSION_MAX}")
        broker.topics = {**broker.topics, **told}
        others = sum(len(b.topics) for b in self._brokers.values() if (b.name, b.id) != (broker.name, broker.id))
        if others + len(broker.topics) > TOPICS_MAX:
            raise Refused(f"more than {TOPICS_MAX} topics")
        broker.version = version

    def _unregister(self, channel: object, frame: Frame) -> Frame:
        self._brokers.pop((frame.ext["brokerName"], self._number(frame.ext["brokerId"])), None)
        self._changed()
        return frame.answer()

    def _query_version(self, channel: object, frame: Frame) -> Frame:
        broker = self._brokers.get((frame.ext["brokerName"], self._number(frame.ext["brokerId"])))
        if len(frame.body) > SMALL_BODY_MAX:
            raise Refused(f"the body has {len(frame.body)} bytes, the limit is {SMALL_BODY_MAX}: send a dataVersion")
        version = loads(frame.body)
        same = broker is not None and broker.version == version
        return frame.answer(ext={"changed": "false" if same else "true"},
                            body=body_of(broker.version) if broker and broker.version else b"")

    def _route(self, channel: object, frame: Frame) -> Frame:
        topic = frame.ext["topic"]
        queues = [q for b in self._first() if (q := b.topics.get(topic) or b.promised(topic))]
        if not queues:
            return frame.answer(TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic:.127}")
        names = {q["brokerName"] for q in queues}
        route: dict[str, Any] = {"brokerDatas": [d for name, d in sorted(self._data().items()) if name in names],
                                 "filterServerTable": {}, "queueDatas": queues}
        if (order := self._kv.get(("ORDER_TOPIC_CONFIG", topic))) is not None:
            route["orderTopicConf"] = order
        return frame.answer(body=body_of(route))

    def _first(self) -> list[Broker]:
        """Of each name the master; while there is none, the slave with the lowest id, so that consumers find what slaves
        have."""
        found: dict[str, Broker] = {}
        for b in self._brokers.values():
            if b.name not in found or b.id < found[b.name].id:
                found[b.name] = b
        return list(found.values())

    def _data(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for b in self._brokers.values():
            data = found.setdefault(b.name, {"brokerAddrs": {}, "brokerName": b.name, "cluster": b.cluster})
            data["brokerAddrs"][str(b.id)] = b.address
        return found

    def _cluster(self, channel: object, frame: Frame) -> Frame:
        clusters: dict[str, list[str]] = {}
        data = self._data()
        for name, d in sorted(data.items()):
            clusters.setdefault(d["cluster"], []).append(name)
        return frame.answer(body=body_of({"brokerAddrTable": data, "clusterAddrTable": clusters}))

    def _topics(self, channel: object, frame: Frame) -> Steps:
        return self._list(None, frame)

    def _topics_of_cluster(self, channel: object, frame: Frame) -> Steps:
        return self._list(frame.ext["cluster"], frame)

    def _list(self, cluster: str | None, frame: Frame) -> Steps:
        """The topics of a cluster, or of all: the latter made once for as long as no table changes."""
        body = self._list_of_all if cluster is None else None
        if body is None:
            changes, until = self._changes, time.monotonic() + STEP_S
            names: dict[str, None] = {}
            for b in [b for b in self._brokers.values() if cluster is None or b.cluster == cluster]:
                names |= dict.fromkeys(b.topics)
                if time.monotonic() >= until:
                    yield
                    until = time.monotonic() + STEP_S
            left, pieces = list(names) if len(names) > NAMES_AT_ONCE else sorted(names), []
            for at in range(0, len(left), NAMES_AT_ONCE):
                pieces.append(body_of(left[at:at + NAMES_AT_ONCE])[1:-1])
                if time.monotonic() >= until:
                    yield
                    until = time.monotonic() + STEP_S
            body = b'{"topicList":[' + b",".join(pieces) + b"]}"
            if cluster is None and changes == self._changes and self._own is None:
                self._list_of_all = body
        return frame.answer(body=body)

    def _delete_topic(self, channel: object, frame: Frame) -> Frame:
        for b in self._brokers.values():
            if isinstance(b.topics, dict):      # the own broker's are its own to delete
                b.topics.pop(frame.ext["topic"], None)
        self._changed()
        return frame.answer()

    def _put_kv(self, channel: object, frame: Frame) -> Frame:
        key = (frame.ext["namespace"], frame.ext["key"])
        if key not in self._kv and len(self._kv) >= KV_MAX:
            raise Refused(f"more than {KV_MAX} KV entries")
        size = self._kv_bytes - self._kv_size(key) + len(body_of([*key, frame.ext["value"]]))
        if size > KV_BYTES_MAX:
            raise Refused(f"the KV entries would have {size} bytes together: delete some, the limit is {KV_BYTES_MAX}")
        self._kv[key], self._kv_bytes = frame.ext["value"], size
        return frame.answer()

    def _kv_size(self, key: tuple[str, str]) -> int:
        """Bytes of this entry in KV_BYTES_MAX; 0 where there is none."""
        return len(body_of([*key, self._kv[key]])) if key in self._kv else 0

    def _get_kv(self, channel: object, frame: Frame) -> Frame:
        space, key = frame.ext["namespace"], frame.ext["key"]
        value = self._kv.get((space, key))
        if value is None:
            return frame.answer(QUERY_NOT_FOUND, f"No config item, Namespace: {space} Key: {key}")
        return frame.answer(ext={"value": value})

    def _delete_kv(self, channel: object, frame: Frame) -> Frame:
        key = (frame.ext["namespace"], frame.ext["key"])
        self._kv_bytes -= self._kv_size(key)
        self._kv.pop(key, None)
        return frame.answer()

    def _list_kv(self, channel: object, frame: Frame) -> Frame:
        space = frame.ext["namespace"]
        table = {key: value for (s, key), value in self._kv.items() if s == space}
        return frame.answer(body=body_of({"table": table})) if table else frame.answer(
            QUERY_NOT_FOUND, f"No config item, Namespace: {space}")

    @staticmethod
    def _number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = -1
        if not 0 <= number < 1 << 63:
            raise Refused(f"{text:.40} is no number that a broker sends here")
        return number
