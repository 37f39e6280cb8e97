"""The tables of docs/logging.md, made from rmq_store/events.py: python -m tests.docs.event_table writes them into the page."""
import logging
import pathlib
import re

from rmq_store.events import Event

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "logging.md"
BEGIN, END = "<!-- Made by `python -m tests.docs.event_table`. -->\n", "<!-- end -->\n"


def table() -> str:
    """Events by level, the worst first, then as they stand in events.py. Fields are in angle brackets."""
    rows = []
    for level in (logging.ERROR, logging.WARNING, logging.INFO):
        rows += ["", f"### {logging.getLevelName(level)}", "", "| event | logger | it says |", "|---|---|---|"]
        for event in Event:
            if event.level == level:
                text = re.sub(r"%\((\w+)\)[-#0 +.\d]*[a-z]", r"`\1`", event.sentence).replace("%%", "%").replace("\n", " ")
                rows.append(f"| `{event.name}` | `rmq_store.{event.room}` | {text.replace('|', '&#124;')} |")
    return "\n".join([*rows, "", ""])


def parts(page: str) -> tuple[str, str, str]:
    """What stands before the tables, the tables, what stands behind them."""
    before, _, rest = page.partition(BEGIN)
    inside, _, behind = rest.partition(END)
    return before + BEGIN, inside, END + behind


def main() -> None:
    before, _, behind = parts(PAGE.read_text())
    PAGE.write_text(before + table() + behind)


if __name__ == "__main__":
    main()
