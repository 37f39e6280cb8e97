"""How the cases are made: real brokers, and real stores without one, driven as tests/interop drives them."""
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop import jvm, test_compaction, test_light_queues
from tests.interop import test_bit_maps as maps
from tests.interop import test_broker_transactions as halves
from tests.interop import test_several_directories as several
from tests.interop import test_timers as timers
from tests.interop.content import SMALL_FILES
from tests.interop.test_together import appended

Made = Iterator[tuple[str, Path, dict[str, Any]]]
HOUR = 3_600_000
TIMED = {**SMALL_FILES, "mappedFileSizeTimerLog": 1 << 16}


def transactions(directory: Path) -> Made:
    for version in ("4.9.8", "5.3.3"):
        path = directory / f"transactions-{version}"
        asked, visible = halves.broker(version, "write", path)
        rolled_back = sorted(halves.ROLLED_BACK)
        yield path.name, path, {"version": version, "options": SMALL_FILES, "pending": sorted(asked),
                                "visible": sorted(visible), "rolled_back": rolled_back}


def timed(directory: Path) -> Made:
    """Two are due within four seconds, one an hour later, one was recalled; the broker ended, or its process did."""
    for ending in ("closed", "halted"):
        path, due = directory / f"timers-{ending}-5.3.3", int(time.time() * 1000) + HOUR
        steps = [f"put:a:{due}", f"put:gone:{due}", f"put:b:{due + 2500}", f"recall:gone:{due}", f"put:c:{due + HOUR}"]
        answer = timers.broker(path, *steps, "taken:5", *(["halt"] if ending == "halted" else []), files=TIMED)
        yield path.name, path, {"version": "5.3.3", "options": TIMED, "due": due, "answer": answer}


def bit_maps(directory: Path) -> Made:
    for version in ("4.9.8", "5.3.3"):
        path = directory / f"bitmaps-{version}"
        answer = maps.broker(version, "write", path)
        yield path.name, path, {"version": version, "options": maps.FILES, "answer": answer}


def light(java: jvm.JavaStore, directory: Path) -> Made:
    path, files = directory / f"light-{java.version}", {"enableLmq": True, "enableMultiDispatch": True, **SMALL_FILES}
    java.ask("open", path, *jvm.settings(files))
    java.ask("light", path, "T", 60, *test_light_queues.LISTS)
    found = {name: test_light_queues.theirs(java, path, name) for name in test_light_queues.NAMES}
    java.ask("close", path)
    yield path.name, path, {"version": java.version, "options": files, "queues": found}


def compaction(java: jvm.JavaStore, directory: Path) -> Made:
    if java.compat != "5.x":
        return
    path, topic = directory / f"compaction-{java.version}", test_compaction.TOPIC
    java.ask("topic", topic)
    java.ask("open", path, *test_compaction.THEIRS)
    java.ask("keyed", path, topic, 0, 300, test_compaction.KEYS)
    java.ask("compact", path)
    java.ask("keyed", path, topic, 300, 30, test_compaction.KEYS)
    found = test_compaction.theirs(java, path)
    java.ask("close", path)
    yield path.name, path, {"version": java.version, "options": dict(setting.split("=") for setting in test_compaction.THEIRS),
                            "newest": found}


def _short(*files: Path) -> list[list[object]]:
    return [[put["topic"], put["queueId"], put["queueOffset"], put["msgId"], zlib.crc32(bytes.fromhex(put["body"]))]
            for file in files for put in appended(file)]


def directories(java: jvm.JavaStore, directory: Path) -> Made:
    path, puts = directory / f"dirs-{java.version}", directory / f"{java.version}.puts"
    java.ask("open", path, *several.java_settings(path))
    java.ask("append", path, puts, 300, 7)
    java.ask("close", path)
    yield path.name, path, {"version": java.version, "options": SMALL_FILES, "puts": _short(puts)}
    image = directory / f"dirs-killed-{java.version}"
    java.ask("open", path, *several.java_settings(path))
    more = puts.with_suffix(".more")
    java.ask("append", path, more, 60, 8)
    shutil.copytree(path, image)            # what a kill would leave
    java.ask("close", path)
    yield image.name, image, {"version": java.version, "options": SMALL_FILES, "puts": _short(puts, more)}


BROKERS = [transactions, timed, bit_maps]
STORES = [light, compaction, directories]
