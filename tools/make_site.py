"""Builds the pages as a site: python tools/make_site.py (or `make docs`). Exit 1 where a link of the built site leads nowhere.

The pages stay where they are; copies of them, and of the files they link to, keep their places under build/site/pages. Of these
mkdocs makes build/site/html. Links to other hosts are not followed. Needs `tools/bootstrap --docs`.
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES, HTML = ROOT / "build" / "site" / "pages", ROOT / "build" / "site" / "html"
CONFIG = ROOT / "mkdocs.yml"
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def slug(title: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it: links work here and there."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def links(page: pathlib.Path) -> Iterator[pathlib.Path]:
    """What a page links to in the repository."""
    for target in LINK.findall(CODE.sub("", page.read_text())):
        parts = urlsplit(target)
        if not parts.scheme and parts.path:
            yield pathlib.Path(os.path.normpath(page.parent / unquote(parts.path)))


def stage(first: list[pathlib.Path]) -> None:
    """Copies the pages, and all that can be reached from them, to their places under PAGES."""
    shutil.rmtree(PAGES.parent, ignore_errors=True)
    seen: set[pathlib.Path] = set()
    left = list(first)
    while left:
        path = left.pop()
        if path in seen or not path.exists() or ROOT not in path.parents:
            continue
        seen.add(path)
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.is_file())
            copy.mkdir(exist_ok=True)
            (copy / "index.md").write_text(f"# {path.name}\n\n" + "".join(f"- [{p.name}]({p.name})\n" for p in files))
            left += files
        else:
            shutil.copyfile(path, copy)
            if path.suffix == ".md":
                left += links(path)


def build() -> None:
    """mkdocs, over what was staged."""
    from mkdocs.commands.build import build as make
    from mkdocs.config import load_config

    config = load_config(str(CONFIG), strict=True)
    config["mdx_configs"]["toc"] = {"slugify": slug, "permalink": True}
    make(config)


class _Page(html.parser.HTMLParser):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.targets.append(value)


def broken(top: pathlib.Path) -> Iterator[str]:
    """Links within the site at `top` that lead nowhere: "page: link"."""
    pages = {path: _Page(path) for path in sorted(top.rglob("*.html"))}
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            goal = path if not parts.path else pathlib.Path(os.path.normpath(path.parent / unquote(parts.path)))
            if goal.is_dir():
                goal /= "index.html"
            wanted = unquote(parts.fragment)
            if not goal.exists() or (wanted and goal in pages and wanted not in pages[goal].ids):
                yield f"{path.relative_to(top)}: {target}"


def main() -> int:
    tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md", "docs"], cwd=ROOT,
                             check=True, capture_output=True, text=True).stdout
    stage([ROOT / name for name in tracked.split("\0") if name])
    build()
    found = sorted(set(broken(HTML)))
    for line in found:
        print(f"docs: broken link: {line}", file=sys.stderr)
    print(f"docs: {len(list(HTML.rglob('*.html')))} pages, begin at {HTML / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
