"""Prints docs/options.md, docs/statuses.md and the types of open's keywords from the tables. For maintainers; a test fails if a
committed page differs."""
import sys
import textwrap

from rmq_store.config import sources
from rmq_store.config.broker import BROKER_ONLY, NEVER_READ
from rmq_store.config.options import OPTIONS, Option
from rmq_store.config.upstream import NO_EFFECT, NOT_SUPPORTED
from rmq_store.status import GetStatus, PutStatus

_HEAD = """# Options

You can give an option in five places: as a keyword of `MessageStore.open(path, **options)`, as `-o name=value` of a command,
as the variable `RMQ_STORE_<NAME>`, in a configuration file, and in a profile ([configuration.md](configuration.md)). A value
may be text (`"65536"`, `"64 MiB"`, `"5s"`, `"true"`). You can use RocketMQ's name instead of the name on this page
(`mappedFileSizeCommitLog=65536`). It is an error to give one option under two names, or to give a name that is not on this
page. The order is default, profile, file, environment, keyword. The later source wins, and `rmqstore config show` prints the
source of each value.

The column *change* says when a value may change. `live`: `store.reconfigure()` may change it while the store is open. `reopen`:
each open may give another value. `fixed`: the value is a property of the files and must be the same at every open.

<!-- Made by `python -m rmq_store.config.document > docs/options.md`. -->
"""


def markdown() -> str:
    parts = [_HEAD, "## Profiles\n", "| profile | for | sets |", "|---|---|---|"]
    for name in sources.profile_names():
        profile = sources.profile(name)
        entries = ", ".join(f"`{k}={_plain(v)}`" for k, v in profile.entries.items())
        parts.append(f"| `{name}` | {profile.description} | {entries} |")
    for group in ("behaviour", "performance"):
        parts += ["", f"## {group.capitalize()}\n", "| option | default | range | change | RocketMQ | what |",
                  "|---|---|---|---|---|---|"]
        parts += [_row(option) for option in OPTIONS if option.group == group]
    parts += ["", "## Not supported\n",
              "RocketMQ has these options; this store does not. A value other than RocketMQ's default is an error.\n",
              "| RocketMQ | default | why |", "|---|---|---|"]
    for name, (default, reason) in NOT_SUPPORTED.items():
        parts.append(f"| `{name}` | {_plain(default)} | {reason} |")
    parts += ["", "## Accepted without effect\n",
              "RocketMQ has these options; here they change nothing. A value other than RocketMQ's default is logged.\n",
              "| RocketMQ | default | why |", "|---|---|---|"]
    for name, (default, reason) in NO_EFFECT.items():
        parts.append(f"| `{name}` | {_plain(default)} | {reason} |")
    parts += ["", "## The broker's\n",
              "A `broker.conf` also holds these options of the broker. The store ignores them and names them in one log "
              "line. `brokerIP1` and `listenPort` together set `store_host`.\n",
              textwrap.fill(" ".join(f"`{n}`" for n in sorted(BROKER_ONLY - NEVER_READ)), 120, break_on_hyphens=False),
              "\nThese names stand in many examples, but no RocketMQ reads them. The store ignores them too: "
              + ", ".join(f"`{n}`" for n in sorted(NEVER_READ)) + "."]
    return "\n".join(parts) + "\n"


_STATUS_HEAD = """# Statuses

Every put and every get has a status. The names and numbers are RocketMQ's. `print(status)` shows the name, `int(status)` is the
number, `status.happened` and `status.to_do` are the texts of this page. The names that this store never returns are here so
that a number from a broker can be decoded. The enums are in `rmq_store.status`:
`from rmq_store.status import PutStatus, GetStatus`.

<!-- Made by `python -m rmq_store.config.document statuses > docs/statuses.md`. -->
"""
_STATUS_TABLES: tuple[tuple[type[PutStatus] | type[GetStatus], str], ...] = (
    (PutStatus, "If a put stored its message, it returns a result, and the status is `result.status`. If a put did not store "
                "its message, it raises an error, and the status is `error.status`. `status.stored` tells the two apart. "
                "A DurabilityError leaves open whether the message is stored."),
    (GetStatus, "`get()` returns a result. The status is `result.status`, and `result.next_offset` is the offset to continue "
                "at."))


def statuses() -> str:
    """docs/statuses.md."""
    parts = [_STATUS_HEAD]
    for kind, text in _STATUS_TABLES:
        parts += [f"## {kind.__name__}\n", f"{text}\n", "| number | status | what happened | what to do |", "|---|---|---|---|"]
        parts += [f"| {status:d} | `{status}` | {status.happened} | {status.to_do} |" for status in kind]
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"


def _row(option: Option) -> str:
    default = f"None: {option.none}" if option.default is None else f"`{_plain(option.default)}`{_size(option)}"
    if option.choices:
        span = " ".join(f"`{c}`" for c in option.choices)
    elif option.kind == "int":
        span = f"{option.low} to {option.high} {option.unit}"
    else:
        span = {"bool": "`true` `false`", "path": "a directory", "paths": "directories, `,` between them",
                "levels": "levels", "host": "ip:port",
                "hours": "hours 0 to 23, `;` between them", "names": "names, `,` between them",
                "listen": "ip:port, or a port", "peer": "host:port"}[option.kind]
    names = " ".join(f"`{u}`" for u in option.upstream) or "-"
    return f"| `{option.name}` | {default} | {span} | {option.change} | {names} | {option.text} |"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "-"


def _size(option: Option) -> str:
    if option.unit == "bytes" and isinstance(option.default, int):
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if option.default % (1 << shift) == 0:
                return f" ({option.default >> shift} {unit})"
    return ""


_TYPED = '''"""The keywords of MessageStore.open and reconfigure, for type checkers: a misspelt one is an error before it runs.

Made by `python -m rmq_store.config.document typed > rmq_store/config/typed.py`, from the table of options. RocketMQ's names
take what our option takes, or RocketMQ's text.
"""
import os
from collections.abc import Sequence
from typing import Literal, TypedDict

__all__ = ["AllOptions", "LiveOptions", "OpenOptions"]
'''
_TYPES = {"int": "int | str", "bool": "bool | str", "path": "str | os.PathLike[str]",
          "paths": "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]", "levels": "str | Sequence[int]",
          "hours": "str | int | Sequence[int]", "host": "str", "names": "str | Sequence[str]",
          "listen": "str | int", "peer": "str"}
NAMED = ("readonly", "compat", "write_path", "flush_mode", "flush_backend", "store_host")      # by open() itself


def typed() -> str:
    """rmq_store/config/typed.py."""
    parts = [_TYPED, "", "class LiveOptions(TypedDict, total=False):",
             '    """Options that may change while a store is open."""', "", *_keys([o for o in OPTIONS if o.change == "live"]),
             "", "", "class OpenOptions(LiveOptions, total=False):", '    """All options that open() does not name itself."""',
             "", *_keys([o for o in OPTIONS if o.change != "live"]),
             "", "", "class AllOptions(OpenOptions, total=False):", '    """All keywords of open()."""', "",
             "    must_exist: bool", "    profile: str | os.PathLike[str] | None", "    config: str | os.PathLike[str] | None",
             *(f"    {name}: {_TYPES['bool'] if name == 'readonly' else 'str'}" for name in NAMED)]
    return "\n".join(parts) + "\n"


def _keys(options: list[Option]) -> list[str]:
    found = []
    for option in options:
        kind = _TYPES.get(option.kind) or f"Literal[{', '.join(repr(c) for c in option.choices)}]".replace("'", '"')
        if option.name not in NAMED:
            found.append(f"    {option.name}: {kind}{' | None' if option.none else ''}")
        found += [f"    {name}: {kind if option.upstream[name] is None else 'bool | str'}" for name in option.upstream]
    return found


if __name__ == "__main__":
    print({"typed": typed, "statuses": statuses}.get("".join(sys.argv[1:]), markdown)(), end="")
