"""Do the pages say what bench/results/figures.json says, and nothing about speed besides? Part of tools/check."""
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.figures import claims, document
from bench.figures.pages import differing, marked, outside, pages
from bench.figures.places import PLACES


def _git(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)


def source(root: Path, found: document.Document) -> Iterator[str]:
    """What is wrong with a document as the source of figures."""
    if found.get("dirty") or found.get("quick"):
        yield "figures.json: its run was a quick one, or of a dirty tree; its figures belong to no commit"
    commit = str(found.get("commit"))
    # a source archive has no history, and a shallow clone a short one
    if not (root / ".git").exists() or _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return
    if _git(root, "merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
        yield f"figures.json: its commit {commit[:12]} is not an ancestor of HEAD"


def findings(root: Path) -> Iterator[str]:
    """One line each."""
    found = document.read(root / "bench" / "results" / "figures.json")
    if found is not None:
        yield from (f"bench/results/{text}" for text in source(root, found))
    for path in pages(root):
        text, name = path.read_text(), str(path.relative_to(root))
        try:
            places = list(marked(text))
        except ValueError as why:
            yield f"{name}: {why}"
            continue
        if found is not None:
            yield from (f"{name}:{line}: {why}" for line, why in differing(text, PLACES, document.Figures(found)))
        else:
            yield from (f"{name}: there is no place {place} in bench/figures/places.py"
                        for place, _, _ in places if place not in PLACES)
        yield from (f"{name}:{line}: {claim!r} is a figure of no run: put it into a marked place (bench/figures/places.py)"
                    for line, claim in claims.findings(name, outside(text)))


def main(root: Path) -> int:
    """Exit code."""
    found = list(findings(root))
    for line in found:
        print(line)
    if not (root / "bench" / "results" / "figures.json").exists():
        print("no figures run yet: marked places stay as they are")
    return 1 if found else 0
