"""From what a caller gives to the values that hold: default < profile < keyword, each with its origin.

Called once per open, by the opening thread. Unknown names, one thing given twice and values out of range are ConfigErrors that
name the option, the value, what was expected and, for a name, the nearest one there is. Nothing is read from the environment.
"""
import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from rmq_store.config import values
from rmq_store.config.options import BY_NAME, BY_UPSTREAM, INT_MAX, OPTIONS, Option
from rmq_store.config.upstream import NO_EFFECT
from rmq_store.errors import ConfigError
from rmq_store.events import Event, emit

__all__ = ["PROFILES", "Default", "Options", "resolve"]

PROFILES: dict[str, dict[str, object]] = {
    "durable": {"flush_mode": "sync", "segment_prezero": "window"},
    "low_latency": {"write_path": "pool"},
}


class Default(str):
    """Text that marks a keyword's default: `write_path=Default("mmap")` in a signature is not a value that somebody gave, so a
    profile may still decide."""

    __slots__ = ()


class Options(Mapping[str, Any]):
    """The values of all options, by attribute or by key; immutable. `origin(name)` says where a value came from."""

    __slots__ = ("_origins", "_values")
    _origins: dict[str, str]
    _values: dict[str, Any]

    def __init__(self, values_: dict[str, Any], origins: dict[str, str]) -> None:
        object.__setattr__(self, "_values", values_)
        object.__setattr__(self, "_origins", origins)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"no option {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("options do not change while a store is open")

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        given = ", ".join(f"{n}={v!r}" for n, v in self._values.items() if self._origins[n] != "default")
        return f"Options({given})"

    def __reduce__(self) -> tuple[object, ...]:
        return Options, (self._values, self._origins)

    def origin(self, name: str) -> str:
        """`default`, `profile durable`, `keyword`, `keyword mappedFileSizeCommitLog` or `derived`."""
        return str(self._origins[name])

    def inferred(self, found: Mapping[str, Any]) -> "Options":
        """The same options with values that the files of the store told; their origin becomes `files`."""
        return Options({**self._values, **found}, {**self._origins, **dict.fromkeys(found, "files")})

    def given(self, name: str) -> bool:
        """True where the caller named this option; else a value found in the files of the store may take its place."""
        return self.origin(name).startswith("keyword")


def resolve(profile: str | None = None, keywords: Mapping[str, object] | None = None, path: object = None) -> Options:
    """The values of all options. `keywords` may use our names and upstream's, with values as objects or as text.

    path: the root, only to compare with upstream's storePathRootDir where that is among the keywords.
    Raises ConfigError.
    """
    given = _named(keywords or {}, path)
    result: dict[str, Any] = {o.name: o.convert(o.default) for o in OPTIONS}
    origins = dict.fromkeys(result, "default")
    if profile is not None:
        if profile not in PROFILES:
            known = ", ".join(repr(p) for p in PROFILES)
            raise ConfigError(f"profile {profile!r} is unknown: there are {known} and None")
        for name, value in PROFILES[profile].items():
            result[name] = value
            origins[name] = f"profile {profile}"
    for name, (key, value) in given.items():
        result[name] = value
        origins[name] = "keyword" if key == name else f"keyword {key}"
    _derive(result, origins)
    _check_together(result)
    return Options(result, origins)


def _named(keywords: Mapping[str, object], path: object) -> dict[str, tuple[str, object]]:
    """Our name -> (the name the caller used, the checked value)."""
    given: dict[str, tuple[str, object]] = {}
    for key, value in keywords.items():
        if isinstance(value, Default):
            continue
        if key in NO_EFFECT:
            _without_effect(key, value, path)
            continue
        option = BY_NAME.get(key) or BY_UPSTREAM.get(key)
        if option is None:
            raise ConfigError(_unknown(key))
        if option.name in given:
            raise ConfigError(f"options {given[option.name][0]} and {key} are two names for one thing: give only "
                              f"{option.name}")
        given[option.name] = (key, _convert(option, key, value))
    return given


def _convert(option: Option, key: str, value: object) -> object:
    translation = option.upstream.get(key)
    try:
        if translation is None:
            return option.convert(value)
        text = str(value).strip().lower()
        if text in translation:
            return translation[text]
        raise ValueError("expected " + " or ".join(t.upper() if "_" in t else t for t in translation))
    except ValueError as error:
        alias = "" if key == option.name else f" (our {option.name})"
        raise ConfigError(f"option {key}{alias} is {value!r}: {error}") from None


def _without_effect(key: str, value: object, path: object) -> None:
    default, reason = NO_EFFECT[key]
    convert = {bool: values.to_bool, int: values.to_int, str: str}[type(default)]
    try:
        found = convert(value)          # type: ignore[operator]
    except ValueError as error:
        raise ConfigError(f"option {key} is {value!r}: {error}") from None
    if key == "storePathRootDir":
        if path is not None and os.path.abspath(found) != os.path.abspath(os.fsdecode(path)):   # type: ignore[arg-type]
            raise ConfigError(f"option storePathRootDir is {value!r}, but the store opened is {path}: give the same path, or "
                              "leave the option out")
    elif found != default:
        emit(Event.OPTION_NO_EFFECT, name=key, value=value, reason=reason)


def _unknown(key: str) -> str:
    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    names = {plain(n): n for n in [*NO_EFFECT, *BY_UPSTREAM, *BY_NAME]}
    near = difflib.get_close_matches(plain(key), names, n=1, cutoff=0.5)
    hint = f"did you mean {names[near[0]]}?" if near else "see docs/options.md"
    return f"option {key} is unknown: {hint}"


def _derive(result: dict[str, Any], origins: dict[str, str]) -> None:
    """Fills in what depends on other options, and rounds as upstream's getters do."""
    sync = result["flush_mode"] == "sync"
    derived = {"segment_prezero": "window" if sync else "off",
               "visibility": "durable" if sync and result["compat"] == "5.x" else "committed"}
    for name, value in derived.items():
        if result[name] is None:
            result[name] = value
            origins[name] = "derived"
    result["consumequeue_file_size_bytes"] = -(-result["consumequeue_file_size_bytes"] // 20) * 20


def _check_together(result: dict[str, Any]) -> None:
    size = 40 + 4 * result["index_slots"] + 20 * result["index_entries_max"]
    if size > INT_MAX:
        raise ConfigError(f"index_slots {result['index_slots']} and index_entries_max {result['index_entries_max']} make an "
                          f"index file of {size} bytes, the limit is {INT_MAX}: lower one of them")
    places = [result[n] for n in ("commitlog_path", "consumequeue_path", "index_path") if result[n] is not None]
    if len({os.path.abspath(p) for p in places}) < len(places):
        raise ConfigError("commitlog_path, consumequeue_path and index_path must be three directories")
