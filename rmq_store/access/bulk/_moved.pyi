from typing import Any

from _typeshed import ReadableBuffer

def append_moved(store: Any, data: ReadableBuffer, *, as_is: bool,
                 path: object = "records") -> tuple[int, int | None, int | None]: ...
def in_common(data: ReadableBuffer, stored: ReadableBuffer, *, as_is: bool) -> tuple[int, int, int]: ...
