"""What is wrong with a path before anything is opened, or because of rights, in words that help. Control plane."""
import os
import stat
from errno import EACCES, EPERM, EROFS

from rmq_store.config.load import Options
from rmq_store.log.recovery.places import Places, denied, need_store, no_directory

__all__ = ["NOT_ALLOWED", "in_the_way", "plainly", "refuse_path"]

NOT_ALLOWED = EACCES, EPERM, EROFS


def refuse_path(root: str, options: Options, must_exist: bool) -> None:
    """Paths that cannot be a store, told apart before anything is made. Raises OSError."""
    if must_exist or options.readonly:
        need_store(Places(root, options))
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise NotADirectoryError
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise no_directory(root) from None
    except PermissionError:
        raise denied(root) from None


def plainly(error: OSError, root: str) -> OSError:
    """An error of NOT_ALLOWED, with what helps."""
    path = error.filename or root
    if error.errno == EROFS:
        return OSError(EROFS, "read-only file system: readonly=True opens the store as it is, all else takes a mount for "
                       "writing", path)
    return denied(path)


def in_the_way(places: Places) -> OSError:
    """Why the directory of a topic or queue cannot be made: names that are left alone may be just what a message needs."""
    topics = [os.path.join(places.consumequeue, name) for name in os.listdir(places.consumequeue)]
    queues = [os.path.join(topic, name) for topic in topics if os.path.isdir(topic) for name in os.listdir(topic)]
    blocking = next((place for place in (*topics, *queues) if not os.path.isdir(place)), places.consumequeue)
    return NotADirectoryError(20, "is in the place of a topic's or queue's directory: move it away", blocking)
