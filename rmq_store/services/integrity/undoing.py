"""Taking a repair back. What it replaced lies in .salvage/, and a journal there says where each piece was.

STORE/.salvage/repair-<ms>.json: each step is written to it, durably, before it is taken. Undoing moves and copies and deletes
nothing; each of its steps may be broken off and repeated. From its first step to its last the journal has another name, and no
writer gets the store's lock (log/recovery/salvage.py): what was put in between would be taken back, too. One thread, which has
that lock.
"""
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular, read_text
from rmq_store.errors import CorruptionError, StoreStateError
from rmq_store.log.recovery import lockfile
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.salvage import DIRECTORY as SALVAGE
from rmq_store.log.recovery.salvage import UNDOING, offset_of
from rmq_store.services.integrity import replacing
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.services.integrity.sealing import pacer
from rmq_store.services.integrity.verification import Verification

__all__ = ["Journal", "undo"]

PREFIX, DONE = "repair-", ".undone"
STEPS = {"extend", "replace", "bridge", "cut", "rebuild", "manifest", "restore"}
_PIECE = 4 << 20


def _copies(root: str) -> list[str]:
    place = os.path.join(root, SALVAGE)
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


class Journal:
    """Of one repair. Made when it begins, before anything is changed; written with its first step."""

    def __init__(self, files: ControlFiles, root: str) -> None:
        self._files, self._root = files, root
        self._name = f"{PREFIX}{time.time_ns() // 1_000_000}.json"
        self._content: dict[str, Any] = {"abort": os.path.exists(os.path.join(root, "abort")), "copies": _copies(root),
                                         "steps": []}

    def note(self, step: str, **what: Any) -> None:
        """Before the step is taken. Paths are relative to the root. Raises OSError."""
        self._content["steps"].append({"step": step, **{k: os.path.relpath(v, self._root) if k in ("file", "aside") else v
                                                        for k, v in what.items()}})
        self._write()

    def expect(self, ends: list[int]) -> None:
        """Where the log may end while the repair is not through and nobody has put a message. Written with the next step."""
        self._content["ends"] = ends

    def end(self, log_end: int) -> None:
        """The repair is through: messages that are put from here on are nothing that undoing may lose."""
        self._content.pop("ends", None)
        if self._content["steps"]:
            self._content["log_end"] = log_end
            self._write()

    def _write(self) -> None:
        directory = os.path.join(self._root, SALVAGE)
        if self._files.mkdir(directory):
            self._files.sync_dir(self._root)
        self._files.write_new(directory, self._name, json.dumps(self._content).encode())


def undo(path: Any, *, say: Callable[[str, str], None], open_store: Callable[..., Any], _io: IoTable | None = None,
         **options: Any) -> None:
    """Takes the last repair of the store in directory `path` back: the log has its bytes again, and what was built again is
    what was there. What the repair had built goes to .salvage/ in its turn. say(step, path) is called before each.

    Raises StoreStateError where there is no repair to take back, or messages were put since; StoreLocked, CorruptionError,
    OSError.
    """
    root, chosen = chosen_options(path, options)
    io = _io if _io is not None else IoTable()
    files = ControlFiles(io)
    lock = lockfile.acquire(files, root, undoing=True)
    try:
        names = [n for n in _copies(root) if n.startswith(PREFIX) and n.endswith((".json", UNDOING))]
        if not names:
            raise StoreStateError(f"{root} has no repair to undo: {SALVAGE}/ holds no journal of a repair")
        journal = os.path.join(root, SALVAGE, max(names, key=lambda n: (len(n), n)))     # the one that is under way is longest
        content = _load(journal)
        work = _Undo(files, io, Places(root, chosen), chosen.segment_size_bytes, content, say)
        if not journal.endswith(UNDOING):
            _refuse_later(root, content, io, open_store, options)
        try:
            if not journal.endswith(UNDOING):
                work.check()
                files.rename(journal, journal + UNDOING)        # from here on nobody else opens the store for writing
                journal += UNDOING
                files.sync_dir(os.path.dirname(journal))
            work.all()
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(journal, None, "steps of a repair", repr(error)) from error
        files.rename(journal, journal.removesuffix(UNDOING) + DONE)
        files.sync_dir(os.path.dirname(journal))
    finally:
        lockfile.release(files, lock)


def _refuse_later(root: str, content: dict[str, Any], io: IoTable, open_store: Callable[..., Any],
                  options: dict[str, Any]) -> None:
    """Raises StoreStateError where messages were put since the repair, or by it."""
    if any(step["step"] == "restore" for step in content["steps"]):
        raise StoreStateError(f"{root}: the repair has put messages again (--restore), and that cannot be undone")
    end = None
    if (ends := content.get("log_end")) is not None:
        ends = [ends]
        with open_store(root, readonly=True, _io=io, **options) as store:
            end = store.max_log_offset
    elif (ends := content.get("ends")) is not None:     # the repair was broken off: the log may have its damage still
        with Verification(root, options, io) as v:
            deque(v.run(True, pacer(None), lambda what, done, total: None), 0)
            end = v.end
    if ends is not None and end not in ends:
        raise StoreStateError(f"{root}: the log ends at {end}, after the repair it ended at {ends[-1]}: "
                              "messages were put since, and undoing the repair would lose them")


def _load(journal: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(read_text(journal))
        unknown = {step["step"] for step in content["steps"]} - STEPS
        if unknown or not isinstance(content["copies"], list) or not isinstance(content["abort"], bool) or (
                not isinstance(content.get("ends", []), list)):
            raise ValueError(f"steps {sorted(unknown)}, copies {content['copies']!r}, abort {content['abort']!r}")
        return content
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(journal, None, "a journal of a repair", str(error)) from None


class _Undo:
    def __init__(self, files: ControlFiles, io: IoTable, places: Places, size: int, content: dict[str, Any],
                 say: Callable[[str, str], None]) -> None:
        self.files, self.io, self.root, self.size, self.content, self.say = files, io, places.root, size, content, say
        self.salvage = os.path.join(places.root, SALVAGE)
        self.places = places
        self.logs = places.commitlogs if places.several else ()
        self.within = (places.root, *places.commitlogs, places.consumequeue, places.index)

    def all(self) -> None:
        """The other way round: what was done last goes first. A crash in between leaves a store that was not closed."""
        abort = os.path.join(self.root, "abort")
        if not os.path.exists(abort):
            lockfile.set_abort(self.files, self.root, "4.9")
        for step in reversed(self.content["steps"]):
            (self._replace_file if step["step"] == "replace" else getattr(self, f"_{step['step']}"))(step)
        if not self.content["abort"]:
            self.files.unlink(abort)
            self.files.sync_dir(self.root)

    def check(self) -> None:
        """Before the first step. Raises ValueError for a step that names another place than one of this store, OSError where a
        kept piece is not there, and StoreStateError as _refuse_filled."""
        for step in self.content["steps"]:
            for name in (*(name for _, name in step.get("parts", ())), step.get("copy")):
                if name is not None:
                    os.stat(self._copy(name))
            for relative in (step.get("file"), step.get("aside"), *step.get("names", ())):
                if relative is not None:
                    self._path(relative)
            if step["step"] == "extend":
                self._refuse_filled(self._path(step["file"]), step["length"])

    @staticmethod
    def _refuse_filled(path: str, length: int) -> None:
        """What the repair added to a file are zeros, unless somebody has put messages since."""
        with suppress(FileNotFoundError), open(path, "rb", opener=open_regular) as file:
            file.seek(length)
            while piece := file.read(_PIECE):
                if piece.count(0) < len(piece):
                    raise StoreStateError(f"{path} has more than zeros behind {length}, where the repair added zeros: messages "
                                          "were put since, and undoing the repair would lose them")

    def _path(self, relative: str) -> str:
        path = os.path.normpath(os.path.join(self.root, relative))
        if not any(os.path.commonpath((place, path)) == place for place in self.within):
            raise ValueError(f"{relative!r} is outside of the store")
        return path

    def _copy(self, name: str) -> str:
        if os.path.basename(name) != name:
            raise ValueError(f"{name!r} is no name in {SALVAGE}")
        return os.path.join(self.salvage, name)

    def _rebuild(self, step: dict[str, Any]) -> None:
        """Derived files: the old ones come back, those of the repair take their place in .salvage/."""
        old, new = self._path(step["aside"]), self._path(step["aside"]) + DONE
        if self.files.mkdir(new):
            self.files.sync_dir(self.salvage)
        for relative in step["names"]:
            place, name = self._path(relative), os.path.basename(relative)
            if not os.path.lexists(os.path.join(old, name)):
                continue                # it is back already, or never went
            self.say("rebuild", place)
            if os.path.lexists(place):
                self.files.rename(place, os.path.join(new, name))
                self.files.sync_dir(new)
            self.files.rename(os.path.join(old, name), place)
            self.files.sync_dir(old)
            self.files.sync_dir(os.path.dirname(place))

    def _cut(self, step: dict[str, Any]) -> None:
        """What recovery cut off and kept: all copies that were not there when the repair began."""
        known = set(self.content["copies"])
        for name in _copies(self.root):
            offset = offset_of(name)
            if offset is None or name in known:
                continue
            start = step["start"] + (offset - step["start"]) // self.size * self.size
            directory = next((path for path in self.logs if os.path.lexists(os.path.join(path, f"{start:020d}"))), step["file"])
            self._replace(os.path.join(self._path(directory), f"{start:020d}"), [(offset - start, name)])

    def _bridge(self, step: dict[str, Any]) -> None:
        self._replace(self._path(step["file"]), [(position, name) for position, name in step["parts"]])

    def _replace(self, path: str, parts: list[tuple[int, str]]) -> None:
        """A new file in the place of one of the log, with these bytes: who has the old one mapped continues to see it."""
        self.say("log", path)
        new = os.path.join(self._beside(os.path.dirname(path)), "undoing")
        if not os.path.exists(path):                # recovery deleted it: all of it was cut
            self.files.write_new(self.salvage, "zeros", b"")
            os.truncate(os.path.join(self.salvage, "zeros"), self.size)
        source = path if os.path.exists(path) else os.path.join(self.salvage, "zeros")
        replacing.copy_with(self.io, source, new, (part for position, name in parts for part in self._pieces(position, name)))
        self.files.rename(new, path)
        self.files.sync_dir(os.path.dirname(path))
        if source != path:
            self.files.unlink(source)

    def _beside(self, directory: str) -> str:
        """Where a file is made that gets its name in this directory of the log: on the same file system."""
        if os.stat(self.salvage).st_dev == os.stat(directory).st_dev:
            return self.salvage
        near = self.places.log_tmp(directory)
        if self.files.mkdir(near):
            self.files.sync_dir(os.path.dirname(near))
        return near

    def _pieces(self, position: int, name: str) -> Iterator[tuple[int, bytes]]:
        with open(self._copy(name), "rb", opener=open_regular) as file:
            while piece := file.read(_PIECE):
                yield position, piece
                position += len(piece)

    def _manifest(self, step: dict[str, Any]) -> None:
        path = self._path(step["file"])
        self.say("manifest", path)
        if self.files.mkdir(os.path.dirname(path)):
            self.files.sync_dir(self.root)
        with open(self._copy(step["copy"]), "rb", opener=open_regular) as file:
            self.files.write_new(os.path.dirname(path), os.path.basename(path), file.read())

    def _replace_file(self, step: dict[str, Any]) -> None:
        """A file that was lost, or had another length: what was there comes back, and the file of the repair is kept."""
        path = self._path(step["file"])
        self.say("log", path)
        beside = self._beside(os.path.dirname(path))
        if os.path.lexists(path) and step["copy"] is None:
            replacing.copy_with(self.io, path, os.path.join(self.salvage, f"{os.path.basename(path)}{DONE}"), [], sparse=True)
            self.files.sync_dir(self.salvage)
            self.files.unlink(path)
        elif step["copy"] is not None:
            new = os.path.join(beside, "undoing")
            replacing.copy_with(self.io, self._copy(step["copy"]), new, [], sparse=True)
            self.files.rename(new, path)
        self.files.sync_dir(os.path.dirname(path))

    def _extend(self, step: dict[str, Any]) -> None:
        """The file gets its own length again: what the repair added are zeros."""
        path = self._path(step["file"])
        if not os.path.exists(path) or os.stat(path).st_size == step["length"]:
            return                      # the open at the end of the repair removed it, if it held nothing
        self.say("extend", path)
        new = os.path.join(self._beside(os.path.dirname(path)), "undoing")
        replacing.copy_with(self.io, path, new, [])
        fd = self.files.open(new, os.O_RDWR)
        try:
            self.files.truncate(fd, step["length"])
            self.files.sync(fd)
        finally:
            self.files.close(fd)
        self.files.rename(new, path)
        self.files.sync_dir(os.path.dirname(path))
