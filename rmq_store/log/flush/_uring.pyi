import os

from rmq_store.base.io._io import IoTable

def setup_flag_names(flags: int) -> tuple[str, ...]: ...
def uring_probe(directory: str | os.PathLike[str], io: IoTable | None = None, *, buffer_bytes: int = ..., sqpoll: bool = ...,
                iopoll: bool = ...) -> dict[str, int | tuple[str, ...] | None]: ...
