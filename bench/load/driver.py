"""What the drivers here share: their arguments and their line of JSON."""
import argparse
import json
from pathlib import Path
from typing import Any

from rmq_store.bench import machine


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """`--name VALUE` for every default, typed like it; `--dir`, `--smoke`."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--smoke", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    for name, value in defaults.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    return p


def keeper(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """parser(), and `--out` for keep()."""
    p = parser(description, **defaults)
    p.add_argument("--out", type=Path, help="also write machine and rows as JSON")
    return p


def keep(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The rows beside the machine's description, where --out names a file."""
    if args.out is not None:
        args.out.write_text(json.dumps({"machine": machine.describe(args.dir), "rows": rows}, indent=1) + "\n")


def report(figures: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(figures), flush=True)
