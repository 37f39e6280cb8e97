"""Where the parts of a store lie, and what its files tell of it before it is opened: sizes, and whether its queues have an
extension. Reads only; what goes while it looks is passed over.
"""
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rmq_store.base.io.files import open_regular
from rmq_store.base.machine.sizing import cut_index, fit
from rmq_store.codec._layout import UNIT_AT_TAGS_CODE, UNIT_SIZE
from rmq_store.codec.layout import EXT_ADDRESS_MAX, get64
from rmq_store.config.load import Options
from rmq_store.config.recorded import LIGHT, read_recorded
from rmq_store.config.values import BATCH_UNIT_SIZE, denied, index_file_size, path_list, real
from rmq_store.errors import StoreRefusesToLoad, illegal
from rmq_store.events import Event, emit
from rmq_store.log.recovery.checkpoint import is_foreign
from rmq_store.log.recovery.recover import is_number
from rmq_store.queues.index.geometry import geometry_of
from rmq_store.queues.index.loader import has_nothing

__all__ = ["MANIFESTS", "Places", "completing", "denied", "fit_sizes", "has_light", "infer_sizes", "need_store", "no_directory",
           "numbered", "refuse_file", "refuse_size", "root_of"]

SIZES_LOOKED_AT = 16
INDEX_FILE_SIZE_DEFAULT = index_file_size(5_000_000, 20_000_000)
_EXT_SIZE_LEAST, _INT_MAX = 64, (1 << 31) - 1
MANIFESTS = ".manifest"                 # services/integrity/manifest.py
_LIGHT_PREFIX = "%LMQ%"
_QUEUE_FILE_MOST = 64 << 20             # ten times the default: a longer one is not read just to guess


def root_of(path: Any) -> str:
    """The absolute path of what a caller gave for a store, without links. Raises ArgumentIllegal for what is none."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise illegal("path", path, "give the directory of a store as str, bytes or a path object") from None
    if not text:
        raise illegal("path", text, "name the directory of the store, '.' for this one (a variable that is not set?)")
    if "\0" in text:
        raise illegal("path", text, "a path cannot contain NUL: remove it")
    return real(text)


def need_store(places: "Places") -> None:
    """Where a store must be says why there is none. Of a log in several directories one must be there. Raises OSError of the
    kind that fits."""
    if places.several and len(places.missing()) < len(places.commitlogs):
        return
    root, log = places.root, places.commitlog
    try:
        if stat.S_ISDIR(os.stat(log).st_mode):
            return
        raise NotADirectoryError(20, "is where a store has its commitlog directory: move it away", log)
    except PermissionError:
        raise denied(log) from None
    except FileNotFoundError:
        pass
    except NotADirectoryError as error:
        if os.path.isdir(root):
            raise
        raise no_directory(root) from error
    if not os.path.isdir(root):
        raise FileNotFoundError(2, "not a message store: the directory does not exist (is its disk mounted?)", root)
    if os.path.dirname(log) != root:
        raise FileNotFoundError(2, "not a message store: the directory of its option commitlog_path does not exist", log)
    parent = os.path.dirname(root)
    near = next((place for place in (parent, os.path.join(root, "store")) if os.path.isdir(os.path.join(place, "commitlog"))),
                None)
    if any(os.path.exists(os.path.join(root, name)) for name in ("checkpoint", "consumequeue", "batchconsumequeue")):
        raise FileNotFoundError(2, "a message store without its commitlog directory: if the log lies elsewhere, name its "
                                "directories in commitlog_path; if it is on a disk that is not mounted, mount it", root)
    found = f"; {near} is one" if near else "; it is empty (is its disk mounted?)" if not os.listdir(root) else ""
    raise FileNotFoundError(2, f"not a message store: it has no commitlog directory{found}", root)


def no_directory(path: str) -> NotADirectoryError:
    """Why `path`, where a directory must be or come, can be none: the first on the way to it that is something else."""
    parts = path.split("/")
    way = ["/".join(parts[:n]) for n in range(2, len(parts))]
    file = next((place for place in way if not os.path.isdir(place)), path)
    return NotADirectoryError(20, "the path is a file, and a store is a directory: give the path of a directory", file)


def refuse_file(path: str) -> None:
    """Where a directory is wanted or will be made. Raises NotADirectoryError for what is there and is none."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise no_directory(path)


def completing(root: str) -> dict[str, str]:
    """Keywords for an open that completes the files in `root` and puts nothing: what a slave left stays a slave's
    (replication/mark.py)."""
    return {"role": "slave"} if os.path.lexists(os.path.join(root, "config", "replica.json")) else {}


class Places:
    """Where the parts of a store lie: absolute paths."""

    def __init__(self, root: str, options: Options) -> None:
        self.root = root
        given, fixed = path_list(options.commitlog_path), path_list(options.commitlog_paths_readonly)
        # Absolute, as those of several are: a later chdir moves no part of a store.
        logs = given if len(given) > 1 else [os.path.abspath(options.commitlog_path or os.path.join(root, "commitlog"))]
        # Every directory with files of the log: those that get new files, ascending, then the others.
        self.growing = sorted(path for path in logs if os.path.abspath(path) not in fixed)
        self.commitlogs = (*self.growing, *fixed)
        self.commitlog = self.commitlogs[0]
        self.consumequeue = os.path.abspath(options.consumequeue_path or os.path.join(root, "consumequeue"))
        self.batchconsumequeue = os.path.join(root, "batchconsumequeue")
        self.consumequeue_ext = os.path.join(root, "consumequeue_ext")
        self.index = os.path.abspath(options.index_path or os.path.join(root, "index"))
        self.commitlog_tmps = [self.log_tmp(path) for path in self.growing]
        self.commitlog_tmp = self.log_tmp(self.commitlog)
        self.consumequeue_tmp = self._tmp(self.consumequeue)
        self.index_tmp = self._tmp(self.index)
        self.manifests = os.path.join(root, MANIFESTS)
        self.checkpoint = os.path.join(root, "checkpoint")
        self.abort = os.path.join(root, "abort")

    def _tmp(self, directory: str) -> str:
        """Where files of `directory` are made: on the same file system, so that a rename puts them into place."""
        inside = os.path.dirname(directory) == self.root
        return os.path.join(self.root, ".alloc") if inside else directory.rstrip("/") + ".alloc"

    def log_tmp(self, directory: str) -> str:
        """The same for a directory of the log. Of several each may lie on a disk of its own, behind a link."""
        if not self.several:
            return self._tmp(directory)
        real = os.path.realpath(directory)
        return os.path.join(self.root, ".alloc") if os.path.dirname(real) == os.path.realpath(self.root) else real + ".alloc"

    @property
    def tmps(self) -> list[str]:
        return sorted({*self.commitlog_tmps, self.consumequeue_tmp, self.index_tmp})

    @property
    def several(self) -> bool:
        """Whether the log has more than one directory."""
        return len(self.commitlogs) > 1

    def missing(self) -> list[str]:
        """The directories of the log that are not there."""
        return [path for path in self.commitlogs if not os.path.isdir(path)]

    def missing_links(self) -> list[str]:
        """Those of them that are links to what is not there."""
        return [path for path in self.missing() if os.path.islink(path) and not os.path.exists(path)]

    def lives(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Of abort and checkpoint, which file it is and when it was written: a writer makes the one when it opens the store,
        and writes the other when it closes it."""
        def seen(path: str) -> tuple[int, int, int] | None:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return None
            return status.st_dev, status.st_ino, status.st_mtime_ns
        return seen(self.abort), seen(self.checkpoint)

    def log_files(self) -> list[tuple[str, int]]:
        """Path and length of the log's files, in all of its directories, by their names."""
        found = [file for path in self.commitlogs for file in numbered(path, 20)]
        return sorted(found, key=lambda file: os.path.basename(file[0]))

    def log_path(self, start: int) -> str:
        """The path of the log's file at `start`; of one that is not there, where it would be in the first directory."""
        paths = [os.path.join(path, f"{start:020d}") for path in self.commitlogs]
        return next((path for path in paths if os.path.lexists(path)), paths[0])

    def log_dir(self, start: int) -> str:
        """The directory of the log in which log_path is."""
        return os.path.dirname(self.log_path(start))

    @property
    def log_elsewhere(self) -> list[str]:
        """The log's directories that are not in the root: another root may name them too, so they are locked with the store."""
        return [path for path in self.commitlogs if os.path.dirname(path) != self.root]

    def with_log(self) -> tuple[bool, bool]:
        """Whether queues, and index, are made on the log's disk, once `tmps` are there. Raises OSError."""
        log, queues, index = (os.stat(tmp).st_dev for tmp in (self.commitlog_tmp, self.consumequeue_tmp, self.index_tmp))
        return queues == log, index == log


def infer_sizes(root: str, options: Options) -> dict[str, Any]:
    """What the files of an existing store tell, for options that nobody gave: sizes, whether ConsumeQueueExt is in use, and
    whether light queues are, where no writer has recorded that (config/recorded.py), or RocketMQ has written since. With
    skip_holes as refuse_size."""
    places = Places(root, options)
    found: dict[str, Any] = {}
    if options.skip_holes:
        refuse_size(places, options)
    if not options.given("segment_size_bytes"):
        size = _told_size(_recorded(options, "segment_size_bytes"), _log_lengths(places.log_files()))
        if size:
            found["segment_size_bytes"] = size
    for name, directory, unit in (("consumequeue_file_size_bytes", places.consumequeue, UNIT_SIZE),
                                  ("batch_consumequeue_file_size_bytes", places.batchconsumequeue, BATCH_UNIT_SIZE)):
        if not options.given(name):
            size = _told_size(_recorded(options, name), _queue_file_sizes(directory))
            if size and size % unit == 0:
                found[name] = size
    origins = {options.origin(name) for name in LIGHT}
    if not all(options[name] for name in LIGHT) and origins <= {"default", "files"} and (
            "files" not in origins or is_foreign(places.checkpoint)) and has_light(places.consumequeue):
        found |= dict.fromkeys(LIGHT, True)
    if not options.given("index_slots") and not options.given("index_entries_max"):
        geometry = _index_geometry(places.index, options)
        if geometry:
            found["index_slots"], found["index_entries_max"] = geometry
    return found | _extension(places, options)


def fit_sizes(root: str, options: Options) -> Options:
    """Sizes that neither anybody nor the files of the store told, cut to the machine (sizing.py); said where they were."""
    places = Places(root, options)
    fitted = fit(options, places.commitlog, places.index)
    cut = {n: fitted[n] for n in fitted if fitted[n] != options[n]}
    if cut:
        emit(Event.SIZES_CUT, path=root, options=", ".join(f"{n}={v}" for n, v in cut.items()))
    return fitted


def _index_geometry(directory: str, options: Options) -> tuple[int, int] | None:
    """Slots and entries of the first index file that tells; where none does, what `fit` would have cut to that size; None where
    the default fits, or nothing."""
    files = numbered(directory, 17)
    # One without an entry may be of another broker's sizes; read alone, it tells its own.
    lengths = [n for path, n in files if len({n for _, n in files}) == 1 or not _without_entry(path)] or [n for _, n in files]
    size = _usual_size(lengths)
    told = index_file_size(options.index_slots, options.index_entries_max) if options.origin("index_slots") == "files" else 0
    if size in (0, INDEX_FILE_SIZE_DEFAULT) or told in lengths:
        return None
    for path, length in files:
        if length != size:
            continue
        with suppress(FileNotFoundError), open(path, "rb", buffering=0, opener=open_regular) as file:
            if found := geometry_of(file.fileno()):
                return found
    return cut_index(options, size)


def _without_entry(path: str) -> bool:
    with suppress(OSError):
        return has_nothing(path, True)
    return True


def numbered(directory: str, digits: int) -> list[tuple[str, int]]:
    """Path and length of each regular file whose name is `digits` ASCII digits, ascending; none where there is no directory."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(entry.name) == digits and is_number(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):       # deleted meanwhile
                        found.append((entry.path, entry.stat(follow_symlinks=False).st_size))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)


def _usual_size(lengths: list[int]) -> int:
    """The length that most files have that are not empty: one of them may be damaged. 0 where there is none."""
    return max(Counter(size for size in lengths if size).items(), key=lambda pair: pair[1], default=(0, 0))[0]


def _recorded(options: Options, name: str) -> int:
    return int(options[name]) if options.origin(name) == "files" else 0


def _told_size(recorded: int, lengths: list[int]) -> int:
    """What the last writer recorded, where a file has this length, or the only one there is was cut; else the usual length."""
    return recorded if recorded in lengths or (len(lengths) == 1 and lengths[0] < recorded) else _usual_size(lengths)


def _log_lengths(log: list[tuple[str, int]]) -> list[int]:
    """The lengths that fit the names of the log's files, if there are any; others are cut."""
    return [n for _, n in log if n > 0 and _fits_names(n, log)] or [length for _, length in log]


def _fits_names(size: int, log: list[tuple[str, int]]) -> bool:
    starts = [int(os.path.basename(path)) for path, _ in log]
    return not any((start - starts[0]) % size for start in starts)


def refuse_size(places: Places, options: Options) -> None:
    """For those who take a file of the log that is longer or shorter than segment_size_bytes for a damaged one. Raises
    StoreRefusesToLoad where somebody gave another size than the log has: the ends of whole files would count as lost."""
    size, recorded = options.segment_size_bytes, int(str(read_recorded(places.root).sizes.get("segment_size_bytes", 0)))
    if not options.given("segment_size_bytes") or size == recorded:
        return
    told = _told_size(recorded, _log_lengths(log := places.log_files()))
    if told > size or (told == recorded != 0) or (told not in (0, size) and not _fits_names(size, log)):
        error = StoreRefusesToLoad(places.commitlog, None, f"files of {size} bytes, as segment_size_bytes says",
                                   f"files of {told} bytes")
        error.cure = f"nothing was changed: leave segment_size_bytes out, or give {told}"
        raise error


def has_light(directory: str) -> bool:
    """Whether there is a light queue among the consume queues in `directory`."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as topics:
        return any(topic.name.startswith(_LIGHT_PREFIX) for topic in topics)
    return False


def _queue_files(directory: str) -> Iterator[tuple[str, str, list[tuple[str, int]]]]:
    """Topic, queue id and files of the first queues that have files, not of all: there may be ten thousand."""
    looked = 0
    try:
        with os.scandir(directory) as topics:
            for topic in topics:
                if not topic.is_dir():
                    continue
                with suppress(FileNotFoundError), os.scandir(topic.path) as queues:
                    for queue in queues:
                        files = numbered(queue.path, 20) if is_number(queue.name) and queue.is_dir() else []
                        if any(size for _, size in files):
                            yield topic.name, queue.name, files
                            looked += len(files)
                        if looked >= SIZES_LOOKED_AT:
                            return
    except (FileNotFoundError, NotADirectoryError):
        return


def _queue_file_sizes(directory: str) -> list[int]:
    return [size for _, _, files in _queue_files(directory) for _, size in files]


def _extension(places: Places, options: Options) -> dict[str, Any]:
    """Files of ConsumeQueueExt tell their size, and a queue's newest entry whether they are in use: a broker that has switched
    them off leaves them there, and would not find what entries that lead to them say."""
    queues = list(_queue_files(places.consumequeue_ext))
    size = _usual_size([size for _, _, files in queues for _, size in files])
    if not _EXT_SIZE_LEAST <= size <= _INT_MAX:
        return {}
    found: dict[str, Any] = {}
    if not options.given("consumequeue_ext_file_size_bytes"):
        found["consumequeue_ext_file_size_bytes"] = size
    if not options.given("consumequeue_ext_enabled") and any(
            _newest_tags_code(os.path.join(places.consumequeue, topic, queue_id)) <= EXT_ADDRESS_MAX
            for topic, queue_id, _ in queues):
        found["consumequeue_ext_enabled"] = True
    return found


def _newest_tags_code(queue: str) -> int:
    """The tags code of the last entry of a queue, 0 where there is none."""
    for path, size in reversed(numbered(queue, 20)):
        if size > _QUEUE_FILE_MOST:
            return 0
        with suppress(FileNotFoundError), open(path, "rb", opener=open_regular) as file:
            data = file.read(_QUEUE_FILE_MOST).rstrip(b"\0")
            if data:
                at = (len(data) - 1) // UNIT_SIZE * UNIT_SIZE
                return get64(data[at:].ljust(UNIT_SIZE, b"\0"), UNIT_AT_TAGS_CODE)
    return 0
