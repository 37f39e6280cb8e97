"""The site of `make docs`: every page has a door, and no link leads nowhere, in the repository or in what is built."""
import importlib.util
import pathlib
import re
import shutil

import pytest

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("make_site", ROOT / "tools" / "make_site.py")
make_site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_site)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md",
                *(ROOT / "tests").glob("*/README.md")])


def headings(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {make_site.slug(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def test_every_page_has_a_door():
    doors = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(doors) == len(set(doors)) > 30
    for door in doors:
        assert (ROOT / door).exists(), f"mkdocs.yml names {door}, which does not exist"
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT)) in doors, f"give {page.relative_to(ROOT)} a line in mkdocs.yml, under nav"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for target in make_site.links(page):
        assert target.exists(), f"{page.name}: {target.relative_to(ROOT)}"
    for path, anchor in re.findall(r"\]\(([^()\s#:]*\.md|)#([^()\s]+)\)", make_site.CODE.sub("", page.read_text())):
        goal = page.parent / path if path else page
        assert anchor in headings(goal), f"{page.name}: {path}#{anchor}"


def test_what_is_broken_is_found(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "a.html").write_text('<h1 id="one">x</h1><a href="b.html">1</a><a href="#one">2</a><a href="below/">3</a>'
                                     '<a href="https://nowhere.invalid/">4</a>')
    (tmp_path / "below" / "index.html").write_text('<a href="../a.html#one">5</a>')
    assert list(make_site.broken(tmp_path)) == ["a.html: b.html"]
    (tmp_path / "b.html").write_text('<a href="a.html#two">6</a><img src="gone.png"><a href="#none">7</a>')
    assert list(make_site.broken(tmp_path)) == ["b.html: a.html#two", "b.html: gone.png", "b.html: #none"]


def test_the_site_is_built(tmp_path, monkeypatch):
    pytest.importorskip("material", reason="mkdocs-material is not installed (tools/bootstrap --docs)")
    config = (ROOT / "mkdocs.yml").read_text()
    for name in ("PAGES", "HTML"):
        monkeypatch.setattr(make_site, name, tmp_path / "site" / name.lower())
        config = config.replace(f"build/site/{name.lower()}", str(tmp_path / "site" / name.lower()))
    (tmp_path / "mkdocs.yml").write_text(config)
    monkeypatch.setattr(make_site, "CONFIG", tmp_path / "mkdocs.yml")
    assert make_site.main() == 0
    built = {str(path.relative_to(make_site.HTML)) for path in make_site.HTML.rglob("*.html")}
    assert {"index.html", "ARCHITECTURE.html", "docs/options.html", "docs/reference/formats.html"} <= built
    shutil.rmtree(tmp_path / "site")
