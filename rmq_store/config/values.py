"""Turns what a caller gives for an option into its value: from Python objects and from the text of a broker.conf.

Pure functions, control plane, any thread. Each raises ValueError with the words "expected …"; load.py adds the option's name.
"""
import operator
import os
import re
import stat

# Sizes in RocketMQ's files that limit options. codec/_layout.pxd names them for the code that reads the files, but this room
# imports no other; tests/codec/test_layout.py compares the two.
QUEUE_ENTRY_SIZE, BATCH_UNIT_SIZE, INDEX_ENTRY_SIZE = 20, 46, 20
_INDEX_HEADER_SIZE, _INDEX_SLOT_SIZE = 40, 4

PATHS_MAX = 64
_BYTES = frozenset(map(str, range(256)))
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


_FACTORS = {"bytes": {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
            "ms": {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}}
UNITS = {"bytes": " of bytes, or one with KiB, MiB or GiB", "ms": " of ms, or one with s, min or h"}


def index_file_size(slots: int, entries: int) -> int:
    """Bytes of an index file with so many hash slots and entries."""
    return _INDEX_HEADER_SIZE + _INDEX_SLOT_SIZE * slots + INDEX_ENTRY_SIZE * entries


def plain_number(text: str, unit: str) -> str:
    """`64 MiB` or `5s` as a number of the option's own unit, bytes or ms; any other text as it is."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([a-zA-Z]+)\s*", text)
    factor = _FACTORS.get(unit, {}).get(match[2].lower()) if match else None
    return text if match is None or factor is None else str(int(match[1]) * factor)


def to_int(value: object) -> int:
    """An integer, or decimal text as Java's parseInt takes it."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    if isinstance(value, (bool, float, str)):
        raise ValueError("expected a whole number")
    try:
        return operator.index(value)    # type: ignore[arg-type]
    except TypeError:
        raise ValueError("expected a whole number") from None


def to_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("expected true or false")


def to_text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    raise ValueError("expected text")


def real(path: str) -> str:
    """The absolute path of a directory, without links where it is there: what an open store works on, whatever becomes of links
    and of the working directory."""
    return os.path.realpath(path) if os.path.isdir(path) else os.path.abspath(path)


def denied(path: str) -> PermissionError:
    """Why this process may not have `path`: the first directory on the way that is closed to it, else the path; and whose that
    is."""
    parts = path.split("/")
    way = ["/".join(parts[:n]) or "/" for n in range(1, len(parts))]
    shut = next((place for place in way if not os.access(place, os.X_OK)), path)
    try:
        about = os.stat(shut)
        owner = f"it belongs to user {about.st_uid}, its mode is {stat.S_IMODE(about.st_mode):03o}, and "
        needed = 0o700 if stat.S_ISDIR(about.st_mode) else 0o600
        if about.st_uid == os.geteuid() and about.st_mode & needed != needed:
            return PermissionError(13, f"permission denied: {owner}this process is that user: run chmod "
                                   f"u+{'rwx' if needed == 0o700 else 'rw'} on it", shut)
    except OSError:
        owner = ""
    return PermissionError(13, f"permission denied: {owner}this process is user {os.geteuid()}: run this as the owner of the "
                           "store, or give it permission (readonly=True needs only the permission to read)", shut)


def to_path(value: object) -> str:
    """One directory, absolute."""
    try:
        path = os.fsdecode(value)       # type: ignore[arg-type]
    except TypeError:
        raise ValueError("expected a path") from None
    if not path or "\0" in path:
        raise ValueError("expected a path")
    if isinstance(value, str) and "," in value:
        raise ValueError("expected one path")
    return real(path)


def to_paths(value: object) -> str | tuple[str, ...]:
    """One directory, or several: text with commas between them, as RocketMQ has it, or a sequence. A path object is one."""
    if isinstance(value, (bytes, os.PathLike)):
        return to_path(value)
    try:
        given = list(value) if not isinstance(value, str) else [part.strip() for part in value.split(",")]  # type: ignore
    except TypeError:
        raise ValueError("expected a path, or several") from None
    while isinstance(value, str) and len(given) > 1 and not given[-1]:
        given.pop()                     # RocketMQ's split drops these, too
    found = tuple(to_path(part) for part in given)
    if not found or any("," in path for path in found):
        raise ValueError("expected paths without a comma in them, with commas between them")
    if len(set(found)) < len(found):
        raise ValueError("expected each directory once, and two of them are one directory, by a link or a mount: give it once")
    if len(found) > PATHS_MAX:
        raise ValueError(f"expected at most {PATHS_MAX} directories")
    return found[0] if len(found) == 1 else found


def path_list(value: str | tuple[str, ...] | None) -> list[str]:
    """The directories that a value of to_paths, or None, has; absolute."""
    return [os.path.abspath(path) for path in ((value,) if isinstance(value, str) else value or ())]


def to_levels(value: object) -> tuple[int, ...]:
    """Delay levels as RocketMQ writes them, `1s 5s 2h 1d`, or milliseconds; the first is level 1. Returns milliseconds."""
    if not isinstance(value, str):
        try:
            numbers = tuple(to_int(v) for v in value)       # type: ignore[attr-defined]
        except (TypeError, ValueError):
            numbers = ()
        if numbers and min(numbers) >= 0:
            return numbers
        raise ValueError("expected levels like '1s 5s 10s 30s 1m 2h 1d', or a sequence of milliseconds")
    levels = []
    for part in value.split():
        if not re.fullmatch(r"[0-9]+[smhd]", part):
            raise ValueError(f"expected levels like '1s 5s 10s 30s 1m 2h 1d', not {part!r}")
        levels.append(int(part[:-1]) * _UNIT_MS[part[-1]])
    if not levels:
        raise ValueError("expected at least one level")
    return tuple(levels)


def to_hours(value: object) -> tuple[int, ...]:
    """Hours of the day as RocketMQ writes them, `04` or `04;16`, or a sequence of numbers. Returns them ascending."""
    try:
        if isinstance(value, str):
            hours = [int(part) for part in value.split(";") if part.strip()]
        elif isinstance(value, int):
            hours = [to_int(value)]
        else:
            hours = [to_int(v) for v in value]      # type: ignore[attr-defined]
    except (TypeError, ValueError):
        hours = []
    if not hours or min(hours) < 0 or max(hours) > 23:
        raise ValueError("expected hours of the day like '04' or '04;16'")
    return tuple(sorted(set(hours)))


def to_names(value: object) -> tuple[str, ...]:
    """Names with commas between them, or a sequence of names. Returns them in their order."""
    try:
        names = value.split(",") if isinstance(value, str) else list(value)       # type: ignore[call-overload]
        found = tuple(name.strip() for name in names)
    except (TypeError, AttributeError):
        raise ValueError("expected names with commas between them") from None
    if found == ("",):
        return ()
    if "" in found or len(set(found)) < len(found):
        raise ValueError("expected names with commas between them, each of them once")
    return found


def ip_bytes(text: str) -> bytes:
    """The 4 or 16 bytes of an address without a zone. Raises ValueError."""
    parts = text.split(".")
    if len(parts) == 4 and all(part in _BYTES for part in parts):
        return bytes(map(int, parts))
    import ipaddress  # who has IPv4 alone, which is nearly everybody, does not pay for it

    return ipaddress.IPv6Address(text).packed


def ip_text(address: bytes) -> str:
    """Of 4 or 16 bytes. Raises ValueError."""
    if len(address) == 4:
        return ".".join(map(str, address))
    import ipaddress  # as above

    return str(ipaddress.IPv6Address(address))


def to_listen(value: object) -> str | None:
    """`ip:port`, as to_host; a port alone is one of 127.0.0.1."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return to_host(f"127.0.0.1:{text}" if re.fullmatch(r"[0-9]{1,5}", text) else text)


def to_peer(value: object) -> str | None:
    """`host:port` of a machine to connect to, by name or address; empty: None."""
    if not isinstance(value, str):
        raise ValueError("expected 'host:port'")
    text = value.strip()
    host, _, port = text.rpartition(":")
    if not text:
        return None
    if (not re.fullmatch(r"[A-Za-z0-9._-]{1,250}|\[[0-9A-Fa-f:.]{2,45}\]", host) or not re.fullmatch(r"[0-9]{1,5}", port)
            or not 1 <= int(port) <= 65535):
        raise ValueError("expected 'host:port' with a port of 1 to 65535")
    return text


def to_host(value: object) -> str:
    """`ip:port`, IPv6 as `[ip]:port`; returned as given."""
    if not isinstance(value, str):
        raise ValueError("expected 'ip:port'")
    host = value.strip()
    address, colon, port = host.rpartition(":")
    try:
        bracketed = address.startswith("[") and address.endswith("]")
        if (len(ip_bytes(address[1:-1] if bracketed else address)) == 16) != bracketed:
            raise ValueError(address)
    except ValueError:
        raise ValueError("expected 'ip:port' or '[ip]:port' with a numeric address") from None
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise ValueError("expected 'ip:port' with a port of 0 to 65535")
    return host
