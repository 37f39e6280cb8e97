"""The table of rooms in ARCHITECTURE.md, from ROOMS of tools/tidy.py, and its contents: python tools/house.py writes them."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tidy

PAGE = Path(__file__).resolve().parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: made by tools/house.py -->\n", "<!-- end of rooms -->\n"
CONTENTS = "<!-- contents: made by tools/house.py -->\n", "<!-- end of contents -->\n"


def table() -> str:
    rows = [f"| `{room}{'/' if (PAGE.parent / 'rmq_store' / room).is_dir() else '.py'}` | {what} | {threads} |"
            for room, (what, threads) in tidy.ROOMS.items()]
    return "\n".join(["| Room | What is in it | Threads there |", "|---|---|---|", *rows, ""])


def contents(text: str) -> str:
    """A link to each heading, as GitHub names them."""
    titles = re.findall(r"(?m)^## (.*)$", text)
    names = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
    return "".join(f"- [{title}](#{name})\n" for title, name in zip(titles, names, strict=True))


def between(text: str, begin: str, end: str, made: str) -> str:
    head, rest = text.split(begin)
    return head + begin + made + end + rest.split(end)[1]


def page(text: str) -> str:
    """`text` with the contents and the table as they are now."""
    return between(between(text, BEGIN, END, table()), *CONTENTS, contents(text))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
