"""One line a micro-batch: rows, rate, and how far a stream is behind its logs."""
import json
import logging
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["ProgressLines", "lag_of"]

log = logging.getLogger("rmq_store.spark")


def lag_of(progress: dict[str, Any]) -> int:
    """Bytes of log between what a batch read and what was there: sources[].latestOffset - endOffset."""
    lag = 0
    for source in progress.get("sources", ()):
        end, latest = source.get("endOffset"), source.get("latestOffset")
        end, latest = (json.loads(v) if isinstance(v, str) else v for v in (end, latest))
        if isinstance(end, dict) and isinstance(latest, dict):
            lag += sum(max(0, latest[name] - end.get(name, 0)) for name in latest)
    return lag


class ProgressLines(StreamingQueryListener):
    """`spark.streams.addListener(ProgressLines())` logs to rmq_store.spark, or calls `say` with each line."""

    def __init__(self, say: Any = None) -> None:
        self.say = say or log.info

    def onQueryStarted(self, event: Any) -> None:
        self.say(f"stream {event.name or event.id}: started")

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        self.say(f"stream {progress.get('name') or progress['id']}: batch {progress['batchId']}, "
                 f"{progress['numInputRows']} rows, {progress.get('processedRowsPerSecond', 0):.0f}/s, "
                 f"{lag_of(progress)} bytes behind")

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.say(f"stream {event.id}: ended{'' if event.exception is None else ' with ' + event.exception}")
