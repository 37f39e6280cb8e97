"""docs/options.md out of the tables. Maintainers only; a test fails when the committed page is not this one."""
from rmq_store.config.load import PROFILES
from rmq_store.config.options import OPTIONS, Option
from rmq_store.config.upstream import NO_EFFECT

_HEAD = """# Options

Given as keywords to `MessageStore.open(path, **options)` and to the commands as `-o name=value`. A value may be text
(`"65536"`, `"true"`). Upstream's name may stand in place of ours (`mappedFileSizeCommitLog=65536`); two names for one
thing, and a name that is not on this page, are errors. A keyword goes before the profile, the profile before the default.

*Change*: `reopen`, any open may give another value; `fixed`, a property of the files of a directory, the same at every open.

<!-- Made by `python -m rmq_store.config.options > docs/options.md`. -->
"""


def markdown() -> str:
    parts = [_HEAD, "## Profiles\n", "| profile | sets |", "|---|---|"]
    for name, entries in PROFILES.items():
        parts.append(f"| `{name}` | {', '.join(f'`{k}={v}`' for k, v in entries.items())} |")
    for group in ("behaviour", "performance"):
        parts += ["", f"## {group.capitalize()}\n", "| option | default | range | change | upstream | what |",
                  "|---|---|---|---|---|---|"]
        parts += [_row(option) for option in OPTIONS if option.group == group]
    parts += ["", "## Accepted without effect\n",
              "Upstream has these; here they change nothing. A value other than upstream's default is logged.\n",
              "| upstream | default | why |", "|---|---|---|"]
    for name, (default, reason) in NO_EFFECT.items():
        parts.append(f"| `{name}` | {_plain(default)} | {reason} |")
    return "\n".join(parts) + "\n"


def _row(option: Option) -> str:
    default = f"None: {option.none}" if option.default is None else f"`{_plain(option.default)}`{_size(option)}"
    if option.choices:
        span = " ".join(f"`{c}`" for c in option.choices)
    elif option.kind == "int":
        span = f"{option.low} to {option.high} {option.unit}"
    else:
        span = {"bool": "`true` `false`", "path": "a directory", "levels": "levels", "host": "ip:port"}[option.kind]
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
