"""Who is connected: producers and consumers by group, and their subscriptions (RocketMQ: ProducerManager, ConsumerManager).

Thread-safety: every method; one lock, and nothing is sent under it.
"""
import functools
import threading
from collections.abc import Callable, Iterable

from rmq_store.broker.request import Handle
from rmq_store.fields import NamedTuple
from rmq_store.filter._program import SqlFilter

__all__ = ["TAG", "Client", "Clients", "ConsumerGroup", "Subscription", "subscription_of"]

TAG = "TAG"
PRODUCER_GROUPS_MAX = 100_000
KEPT_MAX = 2048         # characters of a topic and an expression that are kept when their clients are gone


class Subscription(NamedTuple):
    """What a group reads of a topic. tags: for store.get, None for all. sql: in place of tags."""

    topic: str
    text: str
    version: int
    kind: str
    tags: str | None
    sql: SqlFilter | None


def subscription_of(topic: str, text: str, kind: str, version: int) -> Subscription:
    """Raises FilterIllegal for SQL that does not parse. Short ones are kept: many clients have the same."""
    return (_kept if len(topic) + len(text) <= KEPT_MAX else _made)(topic, text, kind, version)


def _made(topic: str, text: str, kind: str, version: int) -> Subscription:
    kind = kind or TAG
    if kind == TAG:
        return Subscription(topic, text, version, kind, text if text not in ("", "*") else None, None)
    return Subscription(topic, text, version, kind, None, SqlFilter(text))


_kept = functools.lru_cache(maxsize=2048)(_made)


class Client(NamedTuple):
    """One connection in one group."""

    connection: Handle
    id: str
    language: str
    version: int
    seen: float
    access_key: str = ""        # of the account that signed its heartbeat, if accounts are asked for


class ConsumerGroup:
    """The consumers of a group that are connected."""

    __slots__ = ("clients", "model", "name", "start", "subscriptions", "type")

    def __init__(self, name: str) -> None:
        self.name, self.type, self.model, self.start = name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET"
        self.clients: dict[int, Client] = {}
        self.subscriptions: dict[str, Subscription] = {}


class Clients:
    """on_change is called with the name of a consumer group whose clients or topics changed. heard says when (time.monotonic)
    the network thread last had a heartbeat of a connection, which nobody has told here."""

    def __init__(self, on_change: Callable[[str], None], heard: Callable[[int], float] = lambda connection: 0.0) -> None:
        self._on_change, self._heard = on_change, heard
        self._lock = threading.RLock()
        self.changes = 0        # of the topics that groups read
        self._touched: set[str] = set()
        self._producers: dict[str, dict[int, Client]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._of: dict[int, tuple[set[str], set[str]]] = {}     # connection -> its groups, of producers and of consumers

    # ---- asked by other processors

    def group(self, name: str) -> ConsumerGroup | None:
        with self._lock:
            return self._consumers.get(name)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        with self._lock:
            found = self._consumers.get(group)
            return None if found is None else found.subscriptions.get(topic)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that are connected and read this topic."""
        with self._lock:
            return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)

    def consumers(self, group: str) -> list[Client]:
        with self._lock:
            found = self._consumers.get(group)
            return [] if found is None else list(found.clients.values())

    def producers(self, group: str) -> list[Client]:
        with self._lock:
            return list(self._producers.get(group, {}).values())

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Connections by group: (of producers, of consumers)."""
        with self._lock:
            return ({name: len(clients) for name, clients in self._producers.items()},
                    {name: len(group.clients) for name, group in self._consumers.items()})

    def client_of(self, id: str) -> Client | None:
        """A connected producer by its client id."""
        with self._lock:
            for clients in self._producers.values():
                for client in clients.values():
                    if client.id == id:
                        return client
        return None

    def subscribed(self, name: str) -> tuple[str, list[Subscription]]:
        """(model, subscriptions) of a consumer group; none where it is not connected."""
        with self._lock:
            group = self._consumers.get(name)
            return ("", []) if group is None else (group.model, list(group.subscriptions.values()))

    def touched(self) -> set[str]:
        """The groups whose topics changed since this was last asked."""
        with self._lock:
            found, self._touched = self._touched, set()
            return found

    # ---- life of connections

    def add_producer(self, group: str, client: Client) -> bool:
        """False where there are too many groups of producers, which exist only here."""
        with self._lock:
            if group not in self._producers and len(self._producers) >= PRODUCER_GROUPS_MAX:
                return False
            self._producers.setdefault(group, {})[client.connection.id] = client
            self._groups_of(client.connection.id)[0].add(group)
            return True

    def add_consumer(self, name: str, client: Client, how: tuple[str, str, str],
                     subscriptions: Iterable[Subscription] | None) -> None:
        """how: its type, model, and where it begins. subscriptions: None where this heartbeat does not tell them."""
        with self._lock:
            group = self._consumers.setdefault(name, ConsumerGroup(name))
            before = group.model, list(group.subscriptions.values())
            group.type, group.model, group.start = (new or old for new, old in zip(how, (group.type, group.model, group.start),
                                                                                   strict=True))
            changed = client.connection.id not in group.clients
            group.clients[client.connection.id] = client
            self._groups_of(client.connection.id)[1].add(name)
            if subscriptions is not None:
                changed = _subscribe(group, subscriptions) or changed
            if before != (group.model, list(group.subscriptions.values())):
                self._touch(name)
        if changed:
            self._on_change(name)

    def remove(self, connection: Handle, producer: str, consumer: str) -> None:
        """A client says good-bye to a group, or two; "" for none."""
        with self._lock:
            self._drop_producer(producer, connection.id)
            changed = self._drop_consumer(consumer, connection.id)
        if changed:
            self._on_change(consumer)

    def gone(self, connection: Handle) -> None:
        """A connection has ended."""
        with self._lock:
            producing, consuming = self._of.pop(connection.id, ((), ()))
            for group in producing:
                self._drop_producer(group, connection.id)
            changed = [name for name in consuming if self._drop_consumer(name, connection.id)]
        for name in changed:
            self._on_change(name)

    def expire(self, before: float) -> None:
        """Closes the connections that sent no heartbeat since `before` (time.monotonic)."""
        with self._lock:
            every = [*self._producers.values(), *(group.clients for group in self._consumers.values())]
            silent = {id: client.connection for clients in every for id, client in clients.items()
                      if client.seen < before and self._heard(id) < before}
        for connection in silent.values():
            connection.close()
            self.gone(connection)

    def _groups_of(self, connection_id: int) -> tuple[set[str], set[str]]:
        return self._of.setdefault(connection_id, (set(), set()))

    def _drop_producer(self, group: str, connection_id: int) -> None:
        clients = self._producers.get(group, {})
        clients.pop(connection_id, None)
        if not clients:
            self._producers.pop(group, None)

    def _drop_consumer(self, group: str, connection_id: int) -> bool:
        found = self._consumers.get(group)
        if found is None or found.clients.pop(connection_id, None) is None:
            return False
        if not found.clients:
            del self._consumers[group]
            self._touch(group)
        return True

    def _touch(self, group: str) -> None:
        """The lock is held."""
        self._touched.add(group)
        self.changes += 1


def _subscribe(group: ConsumerGroup, subscriptions: Iterable[Subscription]) -> bool:
    """Takes the subscriptions of a heartbeat. Returns whether the set of topics changed."""
    changed = False
    named = set()
    for found in subscriptions:
        named.add(found.topic)
        before = group.subscriptions.get(found.topic)
        changed = changed or before is None
        if before is None or before.version < found.version:
            group.subscriptions[found.topic] = found
    for topic in [topic for topic in group.subscriptions if topic not in named]:
        del group.subscriptions[topic]
        changed = True
    return changed
