"""Finds claims about speed outside the marked places: such a number would belong to no run.

A claim is a number with a unit of rate or of short time, a factor that compares, or words that mean one. Code is not read. What
is no claim although it looks like one stands in ALLOWED with the reason.
"""
import re
from collections.abc import Iterator

_NUMBER = r"(?<![\w.,-])\d[\d.,]*"
_CLAIMS = re.compile("|".join((
    rf"{_NUMBER}\s*(?:k|M|G|million|thousand)?\s*(?:[KMGT]i?B)?(?:\s?(?:puts|gets|rows|messages|msgs|flushes|syncs))?"
    r"(?:/s\b|\s+(?:a|per)\s+second)",
    rf"{_NUMBER}\s*(?:[KMGT]i?B|[kM]|(?:puts|gets|rows|messages|syncs))\s*(?:/s\b|(?:a|per)\s+second)",
    rf"{_NUMBER}\s*(?:ns|µs|us|ms|nanoseconds?|microseconds?|milliseconds?)\b",
    rf"{_NUMBER}\s*(?:x|×|times)\s+(?:as\s+\w+|faster|slower|the\s+(?:rate|speed|cost|time))",
    rf"{_NUMBER}\s+of\s+the\s+(?:rate|speed)",
    r"\b(?:two|three|four|five|six|ten|twenty|sixty|hundred|several)\s?times\s+"
    r"(?:as\s+(?:fast|slow|many)|faster|slower|the\s+cost)",
    r"\bnowhere\s+(?:faster|slower)|\b(?:twice|half)\s+as\s+(?:fast|slow)",
    r"\b(?:millions?|thousands)\s+of\s+(?:puts|gets|rows|messages)\s+(?:a|per)\s+second",
    rf"{_NUMBER}\s+(?:x|×)\s*\|", r"^\|[^\n]*\b(?:ns|µs|ms|[KMG]iB/s|[kM]/s|a second)\b[^\n]*\|\n\|[ -]*-[^\n]*$",
    r"\b(?:under|below|within|some|a\s+few)\s+(?:a\s+|one\s+|\w+\s+)?(?:nano|micro)seconds?\b")), re.MULTILINE)
_CODE = re.compile(r"^ *```.*?^ *```$|``[^\n]+?``|`[^`\n]*(?:\n[^`\n]+)?`|<!--.*?-->|(?<=\])\([^)\s]*\)",
                   re.MULTILINE | re.DOTALL)

# (page, pattern, why this is no claim)
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("ARCHITECTURE.md", "200 to 500 µs", "an interval of the code"),
    ("ARCHITECTURE.md", "100 µs at a time", "an interval of the code"),
    ("ARCHITECTURE.md", "more than 500 ms", "a limit of the code"),
    ("ARCHITECTURE.md", "every 100 ms", "intervals of the code and of RocketMQ"),
    ("ARCHITECTURE.md", "timer of 200 µs", "an interval of the code"),
    ("ARCHITECTURE.md", "next 20 µs", "an interval of the code"),
    ("docs/choosing-a-backend.md", "some hundred microseconds to", "the interval of commits"),
    ("docs/choosing-a-backend.md", "60 MiB a second", "the limit that the benchmark sets for its disk"),
    ("docs/cleaning.md", r"\(100 ms\)", "the default of an option"),
    ("docs/one-writer-many-readers.md", "10 ms later", "an interval of the code"),
    ("docs/spark.md", "assumed rate of 0.4 GiB/s a core", "an assumption of a calculation"),
    ("docs/spark.md", "deliver 102 GiB/s, which is 1 GiB/s a broker", "the result of a calculation"),
)
# Their numbers are limits and intervals of the code, from which tests make them.
GENERATED = ("docs/options.md", "docs/logging.md", "docs/reference/")


def findings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """(line, claim) of each claim in a page; `text` is the page without its marked places."""
    if name.startswith(GENERATED):
        return

    def blot(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "§", found[0])

    text = _CODE.sub(blot, text)
    for page, pattern, _ in ALLOWED:
        if page == name:
            text = re.sub(pattern.replace(" ", r"\s+"), blot, text)
    for claim in _CLAIMS.finditer(text):
        yield text.count("\n", 0, claim.start()) + 1, " ".join(claim[0].split())


def unused(name: str, text: str) -> list[str]:
    """Patterns of ALLOWED for a page that match nothing in it any more."""
    return [pattern for page, pattern, _ in ALLOWED if page == name and not re.search(pattern.replace(" ", r"\s+"), text)]
