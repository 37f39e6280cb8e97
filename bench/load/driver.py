"""What the drivers here share: their arguments and their line of JSON."""
import argparse
import json
from pathlib import Path
from typing import Any


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """`--name VALUE` for every default, typed like it; `--dir`, `--smoke`."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--smoke", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    for name, value in defaults.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    return p


def report(figures: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(figures), flush=True)
