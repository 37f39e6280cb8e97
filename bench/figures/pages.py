"""The marked places of pages: what stands in them is made from bench/results/figures.json, and refused where it differs.

    <!-- figures: NAME -->
    a table, or a paragraph with figures, from places.py
    <!-- end of figures -->
"""
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.figures.document import Figures

BEGIN = re.compile(r"^<!-- figures: ([\w-]+) -->\n", re.MULTILINE)
END = "<!-- end of figures -->\n"

Places = Mapping[str, Callable[[Figures], str]]


def pages(root: Path) -> list[Path]:
    """Every page that may state figures."""
    return [root / "README.md", root / "CHANGELOG.md", root / "ARCHITECTURE.md", *sorted((root / "docs").rglob("*.md"))]


def marked(page: str) -> Iterator[tuple[str, int, int]]:
    """(name, begin and end of the text) of each marked place. Raises ValueError for a mark that is not closed."""
    for mark in BEGIN.finditer(page):
        end = page.find(END, mark.end())
        following = BEGIN.search(page, mark.end())
        if end < 0 or (following is not None and following.start() < end):
            raise ValueError(f"the place {mark[1]} has no line {END.strip()}")
        yield mark[1], mark.end(), end


def outside(page: str) -> str:
    """The page with its marked places blotted out; lines stay where they are."""
    for _, begin, end in marked(page):
        page = page[:begin] + re.sub(r"[^\n]", " ", page[begin:end]) + page[end:]
    return page


def written(page: str, places: Places, figures: Figures) -> str:
    """The page with each marked place made again. Raises ValueError for a name that `places` does not have."""
    for name, begin, end in reversed(list(marked(page))):
        if name not in places:
            raise ValueError(f"there is no place {name} in bench/figures/places.py")
        page = page[:begin] + places[name](figures) + page[end:]
    return page


def differing(page: str, places: Places, figures: Figures) -> Iterator[tuple[int, str]]:
    """(line, message) of each marked place that says something else than the figures."""
    for name, begin, end in marked(page):
        line = page.count("\n", 0, begin) + 1
        if name not in places:
            yield line, f"there is no place {name} in bench/figures/places.py"
        elif (made := places[name](figures)) != page[begin:end]:
            before, after = page[begin:end].splitlines(), made.splitlines()
            n = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
            yield line + n, f"{name} differs from bench/results/figures.json: run tools/figures --write"
