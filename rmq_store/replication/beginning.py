"""Where an empty slave begins: at the last file of its master's log, whichever that is then. The opening thread."""
import mmap
import os

from rmq_store.base.io.files import ControlFiles
from rmq_store.events import Event, emit
from rmq_store.log.recovery.places import Places

__all__ = ["drop_empty_log"]

_CHUNK = 1 << 20


def drop_empty_log(files: ControlFiles, places: Places) -> None:
    """Removes the files of a log in which nothing was ever written, newest first: they would bind the slave to their names,
    where its master may have nothing. A log that the store's queues know is not touched. Raises OSError."""
    if os.path.isdir(places.consumequeue) and os.listdir(places.consumequeue):
        return
    found = places.log_files()
    if not all(_zeros(path) for path, _ in found):
        return
    for path, _ in reversed(found):
        files.unlink(path)
        files.sync_dir(os.path.dirname(path))
        emit(Event.EMPTY_FILE_REMOVED, file=path)


def _zeros(path: str) -> bool:
    with open(path, "rb") as f:
        if f.read(8).strip(b"\0"):
            return False                # a record begins there: the common case, without a look at the rest
        try:
            data = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        except OSError:                 # one hole, or a file system that does not know
            data = 0 if os.fstat(f.fileno()).st_blocks else os.fstat(f.fileno()).st_size
        f.seek(data - data % mmap.PAGESIZE)
        while chunk := f.read(_CHUNK):
            if chunk.count(0) != len(chunk):
                return False
    return True
