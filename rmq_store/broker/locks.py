"""Locks of queues for ordered consuming: codes 41 and 42 (RocketMQ: RebalanceLockManager). One lock; any thread."""
import threading
import time
from typing import Any

from rmq_store.broker.codes import Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.remoting.frame import Frame

__all__ = ["Locks"]

LIFE_S = 60.0
QUEUES_MAX = 10_000         # of one request
LOCKS_MAX = 1_000_000
NAME_MAX = 1024             # of a client id, a group or a topic

_Key = tuple[str, str, int]     # group, topic, queue id


class Locks:
    """A client holds a queue until it lets it go, or does not ask again for 60 s."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._held: dict[_Key, tuple[str, float]] = {}

    def processors(self) -> dict[int, Processor]:
        return {41: self._take, 42: self._release}

    def _take(self, request: Request) -> Frame:
        client, keys = _asked(request)
        now = time.monotonic()
        given = []
        with self._lock:
            if len(self._held) + len(keys) > LOCKS_MAX:
                self._held = {key: held for key, held in self._held.items() if held[1] > now}
                if len(self._held) + len(keys) > LOCKS_MAX:
                    raise Refused(Code.SYSTEM_ERROR, f"more than {LOCKS_MAX} queues are locked")
            for key, queue in keys:
                owner, until = self._held.get(key, ("", 0.0))
                if owner in ("", client) or until <= now:
                    self._held[key] = (client, now + LIFE_S)
                    given.append(queue)
        return request.answer(body=body_of({"lockOKMQSet": given}))

    def _release(self, request: Request) -> Frame:
        client, keys = _asked(request)
        with self._lock:
            for key, _ in keys:
                if self._held.get(key, ("", 0.0))[0] == client:
                    del self._held[key]
        return request.answer()


def _asked(request: Request) -> tuple[str, list[tuple[_Key, dict[str, Any]]]]:
    """(client id, the queues that it names)."""
    data = request.json()
    group, client, queues = data.get("consumerGroup"), data.get("clientId"), data.get("mqSet")
    if not (isinstance(group, str) and isinstance(client, str) and len(group) <= NAME_MAX and len(client) <= NAME_MAX
            and isinstance(queues, list) and len(queues) <= QUEUES_MAX):
        raise Refused(Code.SYSTEM_ERROR, f"the body lacks consumerGroup, clientId or an mqSet of at most {QUEUES_MAX} queues")
    keys: list[tuple[_Key, dict[str, Any]]] = []
    for queue in queues:
        topic, number = (queue.get("topic"), queue.get("queueId")) if isinstance(queue, dict) else (None, None)
        if not isinstance(topic, str) or len(topic) > NAME_MAX or not isinstance(number, int):
            raise Refused(Code.SYSTEM_ERROR, "an entry of mqSet has no topic and queueId")
        keys.append(((group, topic, number), queue))
    return client, keys
