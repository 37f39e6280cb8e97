"""Circles among the files of rmq_store/: python tools/circles.py prints each, and ends with 1 if there is one.

A cimport, an import inside of a function and one for type checkers count, too: whoever reads one of the files has to read all.
"""
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tidy


def module_of(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def statements(text: str) -> Iterator[str]:
    """Lines, those in parentheses joined."""
    gathered, depth = "", 0
    for line in text.split("\n"):
        gathered += line + " "
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            yield gathered
            gathered, depth = "", 0


def imports(root: Path) -> dict[str, set[str]]:
    """Module -> modules of this package that it imports; a .pyx, its .pxd and its stub are one."""
    files = [p for p in root.glob("rmq_store/**/*") if p.suffix in (".py", ".pyx", ".pxd")]
    graph: dict[str, set[str]] = {module_of(root, path): set() for path in files}
    for path in files:
        me = module_of(root, path)
        for line in statements(path.read_text(encoding="utf-8")):
            for source in tidy.imported(line, list(path.relative_to(root).parent.parts)):
                names = re.findall(r"\w+", line.partition("import")[2])
                within = {f"{source}.{name}" for name in names} & graph.keys()      # from package import module
                graph[me] |= (within or {source} & graph.keys()) - {me}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that all reach one another."""
    reach = {me: set(others) for me, others in graph.items()}
    for via in graph:
        for me in graph:
            if via in reach[me]:
                reach[me] |= reach[via]
    groups = {tuple(sorted(other for other in reach[me] if me in reach[other])) for me in graph if me in reach[me]}
    return sorted(map(list, groups))


def main() -> int:
    found = circles(imports(Path(__file__).resolve().parents[1]))
    for group in found:
        print("circle: " + ", ".join(group))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
