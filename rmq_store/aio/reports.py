"""What AsyncMessageStore tells of itself: the calls of MessageStore (opened/reports.py), awaited. The event loop's thread."""
from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.hooking import AsyncHooks
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.services.statistics.groups import GroupStats
from rmq_store.services.statistics.report import StoreStats
from rmq_store.services.statistics.windows import StatsItem

__all__ = ["AsyncReports"]


class AsyncReports(AsyncHooks):
    """The reporting half of AsyncMessageStore."""

    async def stats(self) -> StoreStats:
        """As MessageStore.stats."""
        return self.store.stats()

    async def histograms(self) -> dict[str, Histogram]:
        """As MessageStore.histograms."""
        return self.store.histograms()

    async def topic_counts(self) -> dict[str, tuple[int, int]]:
        """As MessageStore.topic_counts."""
        return self.store.topic_counts()

    async def group_stats(self) -> list[GroupStats]:
        """As MessageStore.group_stats."""
        return self.store.group_stats()

    async def broker_stats(self) -> dict[str, dict[str, float]]:
        """As MessageStore.broker_stats."""
        return self.store.broker_stats()

    async def stats_item(self, name: str, key: str) -> StatsItem | None:
        """As MessageStore.stats_item."""
        return self.store.stats_item(name, key)

    async def stats_items(self) -> dict[str, dict[str, StatsItem]]:
        """As MessageStore.stats_items."""
        return self.store.stats_items()

    async def runtime_info(self) -> dict[str, str]:
        """As MessageStore.runtime_info."""
        return await in_own_thread(self.store.runtime_info)

    async def dump_threads(self) -> str:
        """As MessageStore.dump_threads."""
        return self.store.dump_threads()
