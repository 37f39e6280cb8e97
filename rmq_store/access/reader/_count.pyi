from rmq_store.access.reader._get import StoreGet
from rmq_store.filter._program import SqlFilter

def count_matches(store: StoreGet, topic: str, queue_id: int, begin: int, end: int, tags: str | None,
                  sql: str | SqlFilter | None, scan_max: int, match_max: int) -> tuple[int, int, int]: ...
