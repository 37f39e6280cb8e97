"""The table of rooms in ARCHITECTURE.md, from ROOMS of tools/tidy.py: python tools/house.py writes it there."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tidy

PAGE = Path(__file__).resolve().parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: made by tools/house.py -->\n", "<!-- end of rooms -->\n"


def table() -> str:
    rows = [f"| `{room}{'/' if (PAGE.parent / 'rmq_store' / room).is_dir() else '.py'}` | {what} | {threads} |"
            for room, (what, threads) in tidy.ROOMS.items()]
    return "\n".join(["| Room | What is in it | Who runs there |", "|---|---|---|", *rows, ""])


def page(text: str) -> str:
    """`text` with the table as it is now."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
