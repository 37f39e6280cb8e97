"""From what a caller gives to the values that hold: default < profile < file < environment < keyword, each with its origin.

Called once per open, by the opening thread. Unknown names, one thing given twice and values out of range are ConfigErrors that
name the option, the value, what was expected and, for a name, the nearest one there is. RocketMQ's names are in three classes:
options of this store (options.py), not supported (another value than the default is an error), and without effect here, the
broker's own among them (ignored, named in one log line a source).
"""
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rmq_store.config import sources, values
from rmq_store.config.broker import BROKER_ONLY, NEVER_READ, is_broker_only
from rmq_store.config.options import BY_NAME, BY_UPSTREAM, INT_MAX, OPTIONS, Option
from rmq_store.config.recorded import read_recorded
from rmq_store.config.sources import ENVIRONMENT, Source
from rmq_store.config.upstream import NO_EFFECT, NOT_SUPPORTED
from rmq_store.errors import ConfigError
from rmq_store.events import Event, emit

__all__ = ["Default", "Options", "changed", "resolve"]

_HOST = {"brokerIP1": 0, "listenPort": 1}       # both together are store_host
_AGAINST = ("reject", "disable", "ignore", "skip", "forbid")   # such a name says the opposite of one without the word
_GIVEN = ("keyword", "environment", "file", "reconfigure")


class Default(str):
    """Text that marks the default of a keyword. A signature says `write_path=Default("mmap")`; no caller gave this value, so a
    profile may still set the option."""

    __slots__ = ()


class Options(Mapping[str, Any]):
    """The values of all options, by attribute or by key. Immutable. `origin(name)` says where a value came from."""

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
        raise AttributeError("an option cannot be set here: store.reconfigure() changes the options that may change while a "
                             "store is open")

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
        """Says where the value of an option came from: `default`, `derived`, `files` (the files of the store), `memory` or
        `disk` (a size cut to what the machine has), `auto` (the back end that was chosen), `profile NAME`, `file PATH`,
        `environment VARIABLE`, `keyword` or `reconfigure`. If the caller used RocketMQ's name, that name follows."""
        return str(self._origins[name])

    def inferred(self, found: Mapping[str, Any], origin: str = "files") -> "Options":
        """The same options with values that were found where nobody gave any, by default in the files of the store."""
        return Options({**self._values, **found}, {**self._origins, **dict.fromkeys(found, origin)})

    def given(self, name: str) -> bool:
        """True where somebody named this option for this store or this process. What a profile says, or nobody, gives way to
        what the files of the store tell."""
        return self.origin(name).split()[0] in _GIVEN


def resolve(profile: object = None, keywords: Mapping[str, object] | None = None, path: object = None, *, config: object = None,
            environment: Mapping[str, str] | None = None, obeyed: Collection[str] | None = None) -> Options:
    """The values of all options.

    profile: a name or a path (sources.profile); None: RMQ_STORE_PROFILE, or the one that the configuration file names. config:
    a file, TOML or broker.conf; None: RMQ_STORE_CONFIG. environment: variables, None for none. keywords: our names and
    RocketMQ's, with values as objects or as text. path: the root, whose last writer's options hold where nobody gives others
    (recorded.py), and to compare with RocketMQ's storePathRootDir. obeyed: of a broker over the store, the names that it takes;
    then what neither takes is said to have no effect. Raises ConfigError, OSError.
    """
    layers = _sources(profile, keywords or {}, config, environment or {})
    if path is not None:
        recorded = read_recorded(os.fsdecode(path))     # type: ignore[arg-type]
        with_profile = layers[0].origin.startswith("profile ")
        layers.insert(int(with_profile), Source("files", recorded.sizes))
        layers.insert(0, Source("files", recorded.others))
    result: dict[str, Any] = {o.name: o.convert(o.default) for o in OPTIONS}
    origins = dict.fromkeys(result, "default")
    for source in layers:
        for name, (key, value) in _named(source, path, obeyed).items():
            result[name] = value
            origins[name] = _origin(source, name, key)
    if origins["commitlog_paths_readonly"] == "files" and origins["commitlog_path"] not in ("files", "default"):
        result["commitlog_paths_readonly"], origins["commitlog_paths_readonly"] = (), "default"     # of other directories
    _derive(result, origins)
    _check_together(result)
    _say_what_rests(result, origins)
    return Options(result, origins)


def changed(options: Options, keywords: Mapping[str, object]) -> Options:
    """`options` with other values for options that may change while a store is open. Raises ConfigError."""
    for key in keywords:
        if key not in BY_NAME and key not in BY_UPSTREAM and is_broker_only(key):
            raise ConfigError(f"option {key} is a broker's, and this store has none of that name: Broker.reconfigure takes "
                              "those of docs/broker.md")
    given = _named(Source("reconfigure", keywords), None)
    for name, (key, value) in given.items():
        option = BY_NAME[name]
        if option.change != "live" and value != options[name]:
            raise ConfigError(f"option {key} cannot change while the store is open: close the store and open it again with "
                              f"{name}={value!r}")
    values = {name: value for name, (_, value) in given.items()}
    if "retention_hours" in values and options.origin("disk_full_pct") in ("default", "derived"):
        options = options.inferred({"disk_full_pct": _full_pct(values["retention_hours"])}, "derived")
    _check_together({**options, **values})
    return options.inferred(values, "reconfigure")


def _full_pct(retention_hours: int | None) -> int | None:
    return 90 if retention_hours is not None else None


def _sources(profile: object, keywords: Mapping[str, object], config: object, environment: Mapping[str, str]) -> list[Source]:
    """Weakest first."""
    variables, choices = sources.environment(environment)
    config = config or choices.get("config")
    file = sources.read_config(config) if config else None
    profile = profile or choices.get("profile") or (file.profile if file else None)
    found = [sources.profile(profile)] if profile else []
    return [*found, *([file] if file else []), variables, Source("keyword", keywords)]


def _origin(source: Source, name: str, key: str) -> str:
    if source.origin == "environment":
        return f"environment {ENVIRONMENT}{name.upper()}"
    return source.origin if key == name else f"{source.origin} {key}"


def _named(source: Source, path: object, obeyed: Collection[str] | None = None) -> dict[str, tuple[str, Any]]:
    """Our name -> (the name the source used, the checked value)."""
    given: dict[str, tuple[str, Any]] = {}
    host: list[str | None] = [None, None]
    ignored: list[str] = []
    no_effect: list[str] = []
    unknown: list[str] = []
    for key, value in source.entries.items():
        if isinstance(value, Default):
            continue
        option = BY_NAME.get(key) or BY_UPSTREAM.get(key)
        if option is not None:
            _take(given, option, key, _convert(option, key, value, source))
        elif key in _HOST:
            host[_HOST[key]] = str(value).strip()
        elif key in NOT_SUPPORTED:
            _not_supported(key, value, source)
        elif key in NO_EFFECT:
            no_effect += _without_effect(key, value, path, source)
        elif is_broker_only(key) or key in NEVER_READ:
            ignored.append(key)
        else:
            unknown += _unknown(key, source, ignored)
    if unknown:
        raise ConfigError("; ".join(unknown) + _where(source))
    if any(host) and "store_host" not in given:
        _take_host(given, host, ignored)
    if obeyed is not None:
        no_effect += sorted(key for key in ignored if key not in obeyed and key not in _HOST)
        ignored = []
    if no_effect:
        emit(Event.OPTION_NO_EFFECT, source=source.origin, options="; ".join(no_effect))
    if ignored:
        emit(Event.OPTIONS_IGNORED, source=source.origin, count=len(ignored), names=", ".join(sorted(ignored)))
    return given


def _take(given: dict[str, tuple[str, Any]], option: Option, key: str, value: object) -> None:
    """One value more. Two names of RocketMQ for one thing may stand side by side if they agree, or one of them wins."""
    if option.name in given:
        before, other = given[option.name]
        if option.name in (key, before) or (value != other and option.wins is None):
            raise ConfigError(f"options {before} and {key} are two names for one option: give only {option.name}")
        if other == option.wins:
            return
    given[option.name] = (key, value)


def _take_host(given: dict[str, tuple[str, Any]], host: list[str | None], ignored: list[str]) -> None:
    """brokerIP1 and listenPort, where the former is an address; a host name tells nothing here."""
    address, port = host
    default_address, _, default_port = str(BY_NAME["store_host"].default).rpartition(":")
    address = f"[{address}]" if address and ":" in address else address
    try:
        value = values.to_host(f"{address or default_address}:{port or default_port}")
    except ValueError:
        ignored += [key for key, at in _HOST.items() if host[at]]
        return
    given["store_host"] = (" and ".join(key for key, at in _HOST.items() if host[at]), value)


def _convert(option: Option, key: str, value: object, source: Source) -> object:
    translation = option.upstream.get(key)
    try:
        if translation is None:
            return option.convert(value)
        text = str(value).strip().lower()
        if text in translation:
            return translation[text]
        enum = any("_" in name for name in translation)     # of Java, in capitals; else true and false
        raise ValueError("expected " + " or ".join(name.upper() if enum else name for name in translation))
    except ValueError as error:
        alias = "" if key == option.name else f" (our {option.name})"
        raise ConfigError(f"option {_spelt(key, source)}{alias} is {value!r}: {error}{_where(source)}") from None


def _is_default(key: str, value: object, default: object, source: Source) -> bool:
    convert = {bool: values.to_bool, int: values.to_int, str: str}[type(default)]
    try:
        return bool(convert(value) == default)         # type: ignore[operator]
    except ValueError as error:
        raise ConfigError(f"option {key} is {value!r}: {error}{_where(source)}") from None


def _not_supported(key: str, value: object, source: Source) -> None:
    default, reason = NOT_SUPPORTED[key]
    if not _is_default(key, value, default, source):
        plain = str(default).lower() if isinstance(default, bool) else default
        raise ConfigError(f"option {key} is {value!r}, which is not supported: {reason}: leave the option out"
                          f"{f', or give {plain}' if plain != '' else ''}{_where(source)}")


def _without_effect(key: str, value: object, path: object, source: Source) -> list[str]:
    default, reason = NO_EFFECT[key]
    if _is_default(key, value, default, source):
        return []
    if key != "storePathRootDir":
        return [f"{key}={value} ({reason})"]
    if path is not None and os.path.abspath(str(value)) != os.path.abspath(os.fsdecode(path)):   # type: ignore[arg-type]
        raise ConfigError(f"option storePathRootDir is {value!r}, but the store is opened at {path}: give the same path, or "
                          f"leave the option out{_where(source)}")
    return []


def _unknown(key: str, source: Source, ignored: list[str]) -> list[str]:
    """What the error says of one key, so that all are named at once. But what stands in the environment and is like no option
    may be somebody else's: a Kubernetes service of the name rmq-store puts RMQ_STORE_SERVICE_HOST there."""
    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    all_names = ["profile", "config", *BROKER_ONLY, *NO_EFFECT, *NOT_SUPPORTED, *BY_UPSTREAM, *BY_NAME]
    candidates = BY_NAME if source.origin == "environment" else all_names
    names = {plain(n): n for n in candidates if n.startswith(_AGAINST) == key.startswith(_AGAINST)}
    import difflib  # for a misspelt name only

    near = difflib.get_close_matches(plain(key), names, n=1, cutoff=0.75 if source.origin == "environment" else 0.6)
    if near and difflib.SequenceMatcher(None, plain(key), near[0]).ratio() < 0.75 and not near[0].startswith(plain(key)):
        near = []       # another option, which has some letters in common: not to be changed for this one
    if not near and source.origin == "environment":
        ignored.append(_spelt(key, source))
        return []
    hint = (f"did you mean {_spelt(names[near[0]], source)}?" if near else
            "remove it; `rmqstore config options` and docs/options.md list all options")
    return [f"option {_spelt(key, source)} is unknown: {hint}"]


def _spelt(key: str, source: Source) -> str:
    return ENVIRONMENT + key.upper() if source.origin == "environment" else key


def _where(source: Source) -> str:
    return f" ({source.origin})" if source.origin.startswith(("file ", "profile ")) else ""


def _derive(result: dict[str, Any], origins: dict[str, str]) -> None:
    """Fills in what depends on other options, and rounds as RocketMQ's getters do."""
    sync = result["flush_mode"] == "sync"
    if result["flush_backend"] == "io_uring" and origins["write_path"] == "default":
        result["write_path"], origins["write_path"] = "pool", "derived"     # the only one that it has
    if result["role"] == "slave" and result["write_path"] != "mmap":
        result["write_path"], origins["write_path"] = "mmap", "derived"     # as RocketMQ: a slave has no pool
    derived: dict[str, object] = {"segment_prezero": "window" if sync else "off",
                                  "visibility": "durable" if sync and result["compat"] == "5.x" else "committed",
                                  "disk_full_pct": _full_pct(result["retention_hours"])}
    for name, value in derived.items():
        if result[name] is None and value is not None:
            result[name] = value
            origins[name] = "derived"
    for size, entry in (("consumequeue_file_size_bytes", values.QUEUE_ENTRY_SIZE),
                        ("batch_consumequeue_file_size_bytes", values.BATCH_UNIT_SIZE)):
        result[size] = -(-result[size] // entry) * entry


def _say_what_rests(result: dict[str, Any], origins: dict[str, str]) -> None:
    """Rules for deleting that somebody gave, and that delete nothing."""
    for name in ("retention_hours_of_day", "disk_clean_pct", "clean_forced"):
        if result["retention_hours"] is None and origins[name] != "default":
            reason = "without retention_hours (RocketMQ: fileReservedTime) nothing is deleted"
            emit(Event.OPTION_NO_EFFECT, source=origins[name], options=f"{name} ({reason})")


def _check_replicas(result: dict[str, Any]) -> None:
    beat, house = result["ha_send_heartbeat_interval_ms"], result["ha_housekeeping_interval_ms"]
    if beat >= house:
        raise ConfigError(f"ha_send_heartbeat_interval_ms is {beat} ms, and ha_housekeeping_interval_ms {house} ms: a peer "
                          "would lose its connection before its next heartbeat; lower the first, or raise the second")
    total, wanted, least = (result[name] for name in ("total_replicas", "in_sync_replicas", "min_in_sync_replicas"))
    if wanted > total:
        raise ConfigError(f"in_sync_replicas is {wanted}, and total_replicas {total}: no put could succeed; raise "
                          "total_replicas to the number of replicas, the master counted")
    if least > wanted and not result["all_ack_in_sync_state_set"]:
        raise ConfigError(f"min_in_sync_replicas is {least}, and in_sync_replicas {wanted}: the least cannot be more than the "
                          "number it stands for; raise in_sync_replicas, or lower min_in_sync_replicas")
    if least > total or (result["all_ack_in_sync_state_set"] and total < 2):
        raise ConfigError(f"total_replicas is {total}, which leaves no slave that could acknowledge: raise total_replicas to "
                          "the number of replicas, the master counted")


def _check_together(result: dict[str, Any]) -> None:
    if result["follow"] and not result["readonly"]:
        raise ConfigError("follow=True is for a store that another process writes: give readonly=True as well, or leave follow "
                          "out; a store that is open for writing shows all its own messages")
    if result["skip_holes"] and (result["follow"] or not result["readonly"]):
        raise ConfigError("skip_holes=True is for reading what is left of a log: give readonly=True as well, without "
                          "follow=True; `rmqstore repair` makes such a store writeable")
    if result["role"] == "sync_master" and result["ha_listen"] is None and not result["readonly"]:
        raise ConfigError("role is sync_master, and no slave can connect: give ha_listen='ip:port' (RocketMQ: haListenPort), "
                          "or role='master'")
    _check_replicas(result)
    size = values.index_file_size(result["index_slots"], result["index_entries_max"])
    if size > INT_MAX:
        raise ConfigError(f"index_slots {result['index_slots']} and index_entries_max {result['index_entries_max']} make an "
                          f"index file of {size} bytes, the limit is {INT_MAX}: lower one of the two")
    logs, fixed = (values.path_list(result[n]) for n in ("commitlog_path", "commitlog_paths_readonly"))
    if logs and not set(logs) - set(fixed):
        raise ConfigError(f"commitlog_paths_readonly has every directory of commitlog_path ({', '.join(logs)}), which leaves "
                          "none for new files: add a directory to commitlog_path")
    places = [*logs, *(place for place in fixed if place not in logs),
              *(os.path.abspath(result[n]) for n in ("consumequeue_path", "index_path") if result[n] is not None)]
    if len(set(places)) < len(places):
        raise ConfigError("commitlog_path, consumequeue_path and index_path must be three different directories: change one")
