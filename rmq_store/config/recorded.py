"""What the last writer of a store had: config/storeOptions.json. No class of RocketMQ: its brokers leave the file alone.

    {"version":1,"root":"/real/path","options":{"enable_lmq":true,"segment_size_bytes":1073741824,...}}

A writer makes it before its first put, and again where an option of it changed. So a tool, an image of the store, or an open
that names no options completes the store as its writer would. The options are those that decide what is in the files. Weaker
than any option that somebody gives; sizes are stronger than a profile, as those that the files tell are. Directories count only
at the root for which they were written: a copy of a store has its parts elsewhere. Control plane.
"""
import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from rmq_store.config.options import OPTIONS
from rmq_store.config.values import denied, path_list
from rmq_store.errors import StoreRefusesToLoad
from rmq_store.fields import NamedTuple

__all__ = ["LIGHT", "NAME", "RECORDED", "Recorded", "read_recorded", "recorded_path", "recorded_text", "unusable"]

NAME = "storeOptions.json"
VERSION = 1
LIGHT = ("enable_lmq", "enable_multi_dispatch")
DIRECTORIES = ("commitlog_path", "commitlog_paths_readonly", "consumequeue_path", "index_path")
SIZES = (*(option.name for option in OPTIONS if option.change == "fixed"), "compaction_file_size_bytes",
         "compaction_cq_file_size_bytes", "timer_log_file_bytes")
RECORDED = (*SIZES, *LIGHT, "lmq_count_max", "compat", "index_enabled", "delay_levels", "record_crc", "record_crc_required",
            "topic_size_max_bytes")
_DEFAULT_PLACES = {"commitlog_path": "commitlog", "consumequeue_path": "consumequeue", "index_path": "index"}
_MOST = 1 << 20


class Recorded(NamedTuple):
    """sizes, others: option -> value, as far as this version knows them. unknown: what it does not know, so that it cannot
    complete such a store. text: all of the file, "" where there is none. spoilt: why the file cannot be used."""

    sizes: dict[str, object]
    others: dict[str, object]
    unknown: list[str]
    text: str
    spoilt: str = ""

    @property
    def unusable(self) -> str:
        """Why an open for writing cannot complete the store; "" where it can."""
        return self.spoilt or (f"this release does not know {', '.join(self.unknown)}" if self.unknown else "")

    def refuse_unknown(self, path: str) -> None:
        """For an open that writes. Raises StoreRefusesToLoad."""
        if not self.unusable:
            return
        error = StoreRefusesToLoad(path, None, f"options that this release knows (version {VERSION} of the file)",
                                   self.unusable)
        error.cure = ("nothing was changed: move the file away, and the store is opened as its other files tell; give the "
                      "options that they do not tell, such as enable_lmq" if self.spoilt else "nothing was changed: open the "
                      "store with the release that wrote it or a newer one; readonly=True reads it with this one")
        raise error


def recorded_path(root: str) -> str:
    """The file's path: str."""
    return os.path.join(root, "config", NAME)


def read_recorded(root: str) -> Recorded:
    """What the file of the store in `root` says. Raises OSError where it cannot be read."""
    text = ""
    try:
        text = _text(recorded_path(root))
        content = json.loads(text)
        version, given = content["version"], dict(content["options"])
    except (FileNotFoundError, NotADirectoryError):
        return Recorded({}, {}, [], "")
    except PermissionError:
        raise denied(recorded_path(root)) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Recorded({}, {}, [], text, f"no JSON with version and options ({error})")
    sizes, others, unknown = _sorted(given)
    if type(version) is not int or version > VERSION:
        unknown.insert(0, f"version {version}")
    if content.get("root") != os.path.realpath(root):
        for name in DIRECTORIES:
            others.pop(name, None)
    for name, place in _DEFAULT_PLACES.items():
        if name in others and _lies_in_place(os.path.join(root, place), str(others[name])):
            del others[name]
    return Recorded(sizes, others, unknown, text)


def unusable(root: str) -> str:
    """Why an open of the store in `root` for writing is refused because of the file; "" where it is not. Raises OSError."""
    return read_recorded(root).unusable


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is no regular file")
        data = os.pread(fd, _MOST + 1, 0)
    finally:
        os.close(fd)
    if len(data) > _MOST:
        raise ValueError(f"it is longer than {_MOST} bytes")
    return data.decode()


def _sorted(given: Mapping[str, Any]) -> tuple[dict[str, object], dict[str, object], list[str]]:
    known = {option.name: option for option in OPTIONS}
    sizes: dict[str, object] = {}
    others: dict[str, object] = {}
    unknown = []
    for name, value in given.items():
        if name not in RECORDED and name not in DIRECTORIES:
            unknown.append(f"option {name}")
            continue
        try:
            (sizes if name in SIZES else others)[name] = known[name].convert(value)
        except ValueError:
            unknown.append(f"{name} of {value!r}")
    return sizes, others, unknown


def _lies_in_place(place: str, told: str) -> bool:
    """Whether the directory is where a store has it, and the file tells another place: somebody has moved it since."""
    return place not in path_list(told) and os.path.isdir(place) and bool(os.listdir(place))


def recorded_text(root: str, options: Any) -> str:
    """The content of the file for a store that is open for writing with these options."""
    content: dict[str, object] = {"version": VERSION}
    told = {name: _plain(options[name]) for name in RECORDED}
    for name in DIRECTORIES:
        places = path_list(options[name])
        if places and not any("," in place for place in places):
            told[name] = ",".join(places)
            content["root"] = os.path.realpath(root)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(told[name])}" for name in sorted(told))
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    return f'{{\n{head},\n "options": {{\n{lines}\n }}\n}}\n'


def _plain(value: Any) -> object:
    return list(value) if isinstance(value, tuple) else value
