"""Prose of the hand-written pages: proselint, and the patterns of CONTRIBUTING's "Plain English" that a program can find.

    python tools/prose.py               # README, CONTRIBUTING, ARCHITECTURE and docs/*.md
    python tools/prose.py PAGE...       # these pages

Code, commands, links' addresses and generated parts are not prose and are not read. Each finding is a line
PAGE:LINE: check: message; exit code 1 if there is any. Called by tools/check.
"""
import pathlib
import re
import sys
from collections.abc import Iterator

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = pathlib.Path(__file__).parents[1]
GENERATED = {"options.md"}
# What is not prose, besides indented code.
NOT_PROSE = [re.compile(pattern, re.MULTILINE | re.DOTALL) for pattern in (
    r"<!-- Made by .*?<!-- end -->", r"<!--.*?-->", r"^ *```.*?^ *```$", r"``[^\n]+?``", r"`[^`\n]*(?:\n[^`\n]+)?`",
    r"(?<=\])\([^)\s]*\)", r"https?://\S+")]
# proselint's checks for typographers and for essays: straight quotes and three dots are what Markdown and shells have.
OFF = ("typography", "annotations", "hedging")
RUDE = "weasel_words.very"      # its message; PATTERNS has another
# The patterns of CONTRIBUTING: (pattern, what to write instead).
PATTERNS = [(re.compile(pattern), cure) for pattern, cure in (
    (r"\bit is (?:looked|waited|said|told|gone|gone by|asked) ", "name who acts: 'the store checks', not 'it is looked'"),
    (r"\b[Ww]hat (?:is|was|are|were|has been) (?:due|lost|left|put|not|put|there|ours|new|behind|derived|unknown|held|read)\b",
     "name the thing: 'messages that are due', not 'what is due'"),
    (r"(?<![\w?] )(?<!\w)Who (?!.*\?)[a-z]", "name the person or program: 'a reader that waits', not 'who waits'"),
    (r"\b(?:is|are) no (?:option|fault|finding|message|record|event|loss|call|level|damage|repeat|prose)\b",
     "'is not a ...', not 'is no ...'"),
    (r"\b(?:go|goes|going|went) on\b", "'continue'"),
    (r"\b[Vv]ery\b", "the sentence without it, or the figure"),
    (r"\bmore seldom\b", "'less often'"),
    (r"\bamid of\b", "'in the middle of'"),
    (r"\bbelongs? into\b", "'belong in'"),
    (r"\b(?:which|that) is said\b|, is said\b", "name who says it: 'and the command says so'"),
    (r"\b[Tt]he same goes for\b|\b[Ss]o it is with\b", "'the same is true of'"),
    (r"\b(?:of|by) ours\b|\bOurs\b|\bours (?:is|has|and|beside)\b", "'this library'"),
    (r"\b[Uu]pstream(?:'s)?\b", "'RocketMQ'"),
    (r"(?m)^#+ (?:What|How|Who|When|Where|Which|Why|If|Is|Are|Does)\b.*", "a task or a noun as a heading"),
    (r"\bit does not know\b", "the sentence in order: 'the sanitizer does not model fences', not 'fences it does not know'"),
)]


def prose(page: str) -> str:
    """The page with all that is not prose blotted out, at its length, so that places stay."""
    for pattern in NOT_PROSE:
        page = pattern.sub(lambda found: re.sub(r"[^\n]", "§", found[0]), page)
    lines, in_list = page.split("\n"), False
    for n, line in enumerate(lines):
        if line and not line.startswith(" "):
            in_list = bool(re.match(r"[-*] |\d+\. ", line))
        if line.startswith("      " if in_list else "    "):
            lines[n] = "§" * len(line)
    return "\n".join(lines)


def findings(name: str, page: str) -> Iterator[tuple[int, str, str]]:
    """(line, check, message), in no order."""
    text = prose(page)
    checks = {check: on and check not in OFF for check, on in DEFAULT["checks"].items()}
    for found in LintFile(name, text).lint({**DEFAULT, "checks": checks}):
        begin, end = (place - 1 for place in found.check_result.span)     # proselint puts a line break in front
        check = found.check_result.check_path
        if check != RUDE and not re.search(r"\n\s*\n|\||#", text[begin:end]):      # a title and its first word may be the same
            yield text.count("\n", 0, begin) + 1, check, found.check_result.message
    for pattern, cure in PATTERNS:
        for hit in pattern.finditer(text):
            yield text.count("\n", 0, hit.start()) + 1, "plain English", f"{hit[0]!r}: write {cure}"


def main(arguments: list[str]) -> int:
    """Exit code."""
    CheckRegistry().register_many(__register__)
    pages = [pathlib.Path(name) for name in arguments] or [
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md",
        *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED)]
    found = [(page, *finding) for page in pages for finding in sorted(findings(page.name, page.read_text()))]
    for page, line, check, message in found:
        print(f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page}:{line}: {check}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
