"""ARCHITECTURE's table of rooms is what tools/tidy.py goes by, and every room in it is there."""
import importlib.util
import pathlib

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
