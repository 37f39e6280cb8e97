"""Filters of consumer groups in an AsyncMessageStore: the calls of MessageStore.consumer_filters, awaited."""
from typing import Any

from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.reports import AsyncReports
from rmq_store.filter._program import SqlFilter
from rmq_store.services.consumer.filters import ConsumerFilter
from rmq_store.services.consumer.progress import MessageCount

__all__ = ["AsyncFilters"]


class AsyncFilters(AsyncReports):
    """For tasks of one event loop. The calls write config/consumerFilter.json or read much, so each runs in its own thread."""

    async def register_filter(self, group: str, topic: str, sql: str | SqlFilter, **how: Any) -> bool:
        """As ConsumerFilters.register."""
        return await in_own_thread(lambda: self.store.consumer_filters.register(group, topic, sql, **how))

    async def unregister_filters(self, group: str) -> None:
        """As ConsumerFilters.unregister."""
        await in_own_thread(lambda: self.store.consumer_filters.unregister(group))

    async def remove_filters(self, group: str, topic: str | None = None) -> int:
        """As ConsumerFilters.remove."""
        return await in_own_thread(lambda: self.store.consumer_filters.remove(group, topic))

    async def estimate_message_count(self, topic: str, queue_id: int, begin: int, end: int, *, tags: str | None = None,
                                     sql: str | SqlFilter | None = None) -> MessageCount:
        """As MessageStore.estimate_message_count."""
        return await in_own_thread(lambda: self.store.estimate_message_count(topic, queue_id, begin, end, tags=tags, sql=sql))

    async def consumer_filters(self, group: str | None = None, topic: str | None = None) -> list[ConsumerFilter]:
        """As ConsumerFilters.list."""
        return await in_own_thread(lambda: self.store.consumer_filters.list(group, topic))
