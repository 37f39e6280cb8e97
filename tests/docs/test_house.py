"""ARCHITECTURE's tables of rooms and threads are what the code has."""
import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)


def test_the_table_is_up_to_date():
    assert house.page(house.PAGE.read_text()) == house.PAGE.read_text(), "python tools/house.py writes it"


def test_every_room_is_there():
    for room in house.tidy.ROOMS:
        place = ROOT / "rmq_store" / room
        assert place.is_dir() or place.with_suffix(".py").is_file(), room


def test_a_room_says_what_it_is_and_has_no_number():
    for room in house.tidy.ROOMS:
        place = ROOT / "rmq_store" / room / "__init__.py"
        if place.exists():
            text = place.read_text()
            assert text.startswith('"""') and not re.match(r'"""ROOM\b', text), room


def test_each_thing_is_found_where_the_table_says():
    text = house.PAGE.read_text().split("## Finding things: where is what")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \| \[[^]]+\]\(([^)#]*)", text)
    assert len(rows) == text.count("\n| ") - 1
    for what in ("a blank record", "a flush back end", "an option", "a status", "what makes a record corrupt"):
        assert any(thing.startswith(what) for thing, *_ in rows), what
    for _, word, file, page in rows:
        assert word in (ROOT / file).read_text(), (word, file)
        assert (ROOT / page).exists(), page


def test_every_thread_is_in_the_table_with_its_room():
    text = house.PAGE.read_text().split("## Threads")[1].split("\n## ")[0]
    told = dict(re.findall(r"(?m)^\| `(rmq-\w+)` \| \w+ \| `([\w/]+)` ", text))
    found = {}
    for path in (ROOT / "rmq_store").rglob("*.py*"):
        if path.suffix in (".py", ".pyx"):
            for name in re.findall(r'(?:start(?:_thread)?|_begin)\([^\n]*"(rmq-\w+)"', path.read_text()):
                room = path.parent.relative_to(ROOT / "rmq_store").as_posix()
                assert found.setdefault(name, room) == room
    for path in (ROOT / "native/net").glob("*.c"):
        found |= dict.fromkeys(re.findall(r'rmq_thread_start\([^\n]*"(rmq-\w+)"', path.read_text()), "network")
    assert told == found
