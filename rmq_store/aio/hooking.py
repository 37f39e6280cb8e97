"""Put hooks, dispatchers, running flags and tables of an AsyncMessageStore: the calls of MessageStore, awaited."""
from typing import Any

from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.timing import AsyncTimers
from rmq_store.replication.service import Replica, ReplicationState
from rmq_store.services.compaction.service import Compacted, CompactionState
from rmq_store.services.compaction.table import KEYS_MAX, Table
from rmq_store.services.dispatchers.dispatcher import Dispatch, DispatcherState

__all__ = ["AsyncHooks"]


class AsyncHooks(AsyncTimers):
    """For tasks of one event loop. Attributes (put_hooks, running_flags, page_cache_busy) are those of `store.store`."""

    async def add_put_hook(self, hook: Any, name: str | None = None) -> None:
        """As MessageStore.add_put_hook. The hook is a plain function: it runs where the put does, which may be the loop's
        thread."""
        self.store.add_put_hook(hook, name)

    async def remove_put_hook(self, hook: Any) -> None:
        """As MessageStore.remove_put_hook."""
        self.store.remove_put_hook(hook)

    async def set_readable(self, readable: bool) -> bool:
        """As MessageStore.set_readable."""
        return self.store.set_readable(readable)

    async def set_writeable(self, writeable: bool) -> bool:
        """As MessageStore.set_writeable."""
        return self.store.set_writeable(writeable)

    async def set_fenced(self, fenced: bool) -> bool:
        """As MessageStore.set_fenced."""
        return self.store.set_fenced(fenced)

    async def add_dispatcher(self, name: str, dispatch: Dispatch, *, from_offset: int | None = None) -> None:
        """As MessageStore.add_dispatcher. The function is a plain one: a thread of the store calls it."""
        await in_own_thread(lambda: self.store.add_dispatcher(name, dispatch, from_offset=from_offset))

    async def remove_dispatcher(self, name: str, *, forget: bool = False) -> None:
        """As MessageStore.remove_dispatcher."""
        await in_own_thread(lambda: self.store.remove_dispatcher(name, forget=forget))

    async def table(self, topic: str, *, keys_max: int = KEYS_MAX) -> Table:
        """As MessageStore.table, read in a thread of its own. The Table is the plain one: its calls take in what arrived since
        the last one, in the loop's thread. Where that may be much, call its `refresh` in a thread (asyncio.to_thread) first."""
        return await in_own_thread(lambda: self.store.table(topic, keys_max=keys_max))

    async def compact(self, topic: str | None = None, *, dry_run: bool = False) -> list[Compacted]:
        """As MessageStore.compact."""
        return await in_own_thread(lambda: self.store.compact(topic, dry_run=dry_run))

    async def compaction_states(self, topic: str | None = None) -> list[CompactionState]:
        """As MessageStore.compaction_states."""
        return await in_own_thread(lambda: self.store.compaction_states(topic))

    async def replicas(self) -> list[Replica]:
        """As MessageStore.replicas."""
        return await in_own_thread(self.store.replicas)

    async def replication(self) -> ReplicationState:
        """As MessageStore.replication."""
        return await in_own_thread(self.store.replication)

    async def dispatchers(self) -> list[DispatcherState]:
        """As MessageStore.dispatchers."""
        return await in_own_thread(self.store.dispatchers)
