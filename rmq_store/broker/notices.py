"""Telling the members of a consumer group that it changed, push 40 (RocketMQ: DefaultConsumerIdsChangeListener).

A group is told at once, and then once in an interval however often it changes. So many members of many groups that come and go
together cost no more than the pace allows, and other requests are served in between. Thread-safety: every method.
"""
import logging
import threading
import time
from collections.abc import Callable

from rmq_store.base.io.threads import start_thread
from rmq_store.broker.clients import Client

__all__ = ["Notices"]

INTERVAL_S = 0.5        # between two notices of a group
AT_ONCE = 64            # members that are told in the thread of the change
PIECE = 128             # pushes of the thread of notices, before it rests
REST_S = 0.02
TOLD_MAX = 4096         # groups of which it is kept when they were told


class Notices:
    def __init__(self, members: Callable[[str], list[Client]], push: Callable[[Client, str], object]) -> None:
        """members: of a group, none if it wants no notices."""
        self._members, self._push = members, push
        self._lock = threading.Condition()
        self._due: dict[str, float] = {}            # groups, and when (time.monotonic) they are told; the first is due first
        self._told: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def changed(self, group: str) -> None:
        """The clients or the topics of a group changed."""
        now = time.monotonic()
        members = self._members(group)
        if not members:
            return
        with self._lock:
            if self._stopped or group in self._due:
                return
            if len(self._told) >= TOLD_MAX:
                self._told = {name: at for name, at in self._told.items() if now - at < INTERVAL_S}
            last = self._told.get(group)
            late = (last is not None and now - last < INTERVAL_S) or len(members) > AT_ONCE or len(self._told) >= TOLD_MAX
            if late:
                if self._thread is None:
                    self._thread = start_thread(self._run, "rmq-broker-notices")
                self._due[group] = now if last is None else last + INTERVAL_S
                self._lock.notify()
            else:
                self._told[group] = now
        if not late:
            for client in members:
                self._push(client, group)

    def stop(self) -> None:
        """Tells nobody any more."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        count = 0
        while (group := self._next()) is not None:
            try:
                for client in self._members(group):
                    self._push(client, group)
                    count += 1
                    if count % PIECE == 0:
                        time.sleep(REST_S)
                        if self._stopped:
                            return
            except Exception:           # for want of memory: the next heartbeat of a client finds out
                logging.getLogger("rmq_store.broker").exception("telling the members of a group failed")

    def _next(self) -> str | None:
        """The next group when it is due; None at the end."""
        with self._lock:
            while not self._stopped:
                group = next(iter(self._due), None)
                wait = None if group is None else self._due[group] - time.monotonic()
                if group is not None and wait is not None and wait <= 0:
                    del self._due[group]
                    self._told[group] = time.monotonic()
                    return group
                self._lock.wait(wait)
        return None
