from rmq_store.access.waiting._wait import StoreWait

def arrived_entries(store: StoreWait, topic: str, queue_id: int, begin: int,
                    end: int) -> tuple[list[tuple[int, int, int, bytes | None]], int]: ...
