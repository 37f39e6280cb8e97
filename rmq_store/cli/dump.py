"""`rmqstore dump`: decodes any file of a store, one line a unit, whatever state the store is in and whoever has it open.

Reads only. Nothing in a file is believed before it was compared with the file's length; what is wrong is shown as a finding and
makes the exit code 1. The main thread only.
"""
import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from rmq_store.cli import formats
from rmq_store.cli.common import COUNT, PATH, body_argument, body_fields, body_line, number
from rmq_store.cli.exits import CANNOT_OPEN, FINDINGS, FINE
from rmq_store.cli.files import KINDS, StoreFile
from rmq_store.cli.formats import Item
from rmq_store.cli.output import Output, Progress, size_text
from rmq_store.codec import _layout, layout
from rmq_store.codec._codec import Blank, decode_record
from rmq_store.codec.layout import FieldValue, time_text
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.events import printable

HEX_BYTES_SHOWN = 48            # of a long field, for people; --json shows all


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=PATH, nargs="+", metavar="FILE", help="files of a store: commitlog, consumequeue, "
                        "consumequeue_ext, "
                        "index, checkpoint, abort, lock")
    parser.add_argument("--kind", choices=KINDS, help="kind of the files; the default is to guess it from path and content")
    parser.add_argument("--from", type=number(0, (1 << 63) - 1), dest="begin", metavar="N", help="begin at this log offset "
                        "(commitlog), queue offset (consumequeue), extension offset (consumequeue_ext) or entry number (index)")
    parser.add_argument("--count", type=COUNT, metavar="N", help="show at most this many units of each file")
    parser.add_argument("--hex", action="store_true", help="also show every field of each unit: number, name, offset, bytes, "
                        "meaning")
    parser.add_argument("--index-slots", type=COUNT, metavar="N", help="number of hash slots of an index file, if the command "
                        "cannot find it out")
    body_argument(parser)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, out: Output) -> int:
    code = FINE
    for path in args.files:
        try:
            with StoreFile(path, args.kind) as file, Progress(path, unit="units") as progress:
                if _dump(file, args, out, progress):
                    code = max(code, FINDINGS)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            out.flush()
            print(f"rmqstore dump: {path}: {error.strerror}", file=sys.stderr)
            code = CANNOT_OPEN
    return code


def _dump(file: StoreFile, args: argparse.Namespace, out: Output, progress: Progress) -> bool:
    """Prints one file; True where something in it is wrong."""
    out.say(f"== {file.path}: {file.kind}, {size_text(file.size)}"
            + (f", from {file.start}" if file.start and file.kind != "index" else ""))
    wrong = False
    for n, item in enumerate(itertools.islice(_items(file, args), args.count)):
        if out.as_json:
            out.record(_json(file, item, args.hex))
        else:
            out.line(_text(file, item, args.body))
            if args.hex:
                for field in item.fields:
                    out.line(_hex_line(field))
        wrong = wrong or bool(item.finding)
        progress.at(n)
    return wrong


def _items(file: StoreFile, args: argparse.Namespace) -> Iterator[Item]:
    if file.kind == "commitlog":
        return commitlog(file, _within(file, args.begin, file.start), args.hex, args.body)
    if file.kind == "consumequeue":
        return formats.consumequeue(file, _within(file, args.begin, file.start // _layout.UNIT_SIZE))
    if file.kind == "consumequeue_ext":
        return formats.consumequeue_ext(file, _within(file, args.begin, file.start))
    if file.kind == "index":
        return formats.index(file, args.begin or 1, args.index_slots)
    return formats.checkpoint(file) if file.kind == "checkpoint" else formats.text_file(file)


def _within(file: StoreFile, begin: int | None, start: int) -> int:
    """Where in the file to begin, from an offset as it is printed."""
    if begin is None:
        return 0
    if begin < start:
        raise ConfigError(f"--from {begin} lies before the start of {file.path}, which is {start}")
    return begin - start


def commitlog(file: StoreFile, first: int, with_fields: bool, body: str) -> Iterator[Item]:
    """Records from position `first` of the file on; ends at the first that cannot be one, as recovery does."""
    at = first
    while file.size - at >= _layout.BLANK_SIZE:
        head = file.read(at, _layout.RECORD_HEAD_SIZE)
        size, magic = layout.get32(head, _layout.RECORD_AT_SIZE), layout.get32(head, _layout.RECORD_AT_MAGIC)
        if size == 0 and magic == 0:
            yield from formats.rest(file, at, "no record")
            return
        raw = file.read(at, min(max(size, _layout.BLANK_SIZE), file.size - at))
        fields = layout.describe(raw) if with_fields else []
        try:
            record = decode_record(raw, path=file.path)
        except CorruptionError as error:
            yield Item("bad", at, len(raw), fields, {"offset": file.start + at},
                       f"no whole record: expected {error.expected}, found {error.found}; recovery cuts here")
            return
        if isinstance(record, Blank):
            item = Item("blank", at, size, fields, {"offset": file.start + at})
            if size != file.size - at:
                item.finding = f"the end-of-file record says that {size} bytes are left, but {file.size - at} are left"
            yield item
            return
        item = Item("record", at, size, fields, {"offset": file.start + at})
        item.facts |= {name: getattr(record, name) for name in (
            "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "born_host", "store_timestamp",
            "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc", "properties")}
        item.facts |= {"version": 2 if record.magic == _layout.MAGIC_V2 else 1, "msg_id": record.message_id,
                       "body_size": len(record.body), **body_fields(bytes(record.body), body)}
        item.finding = _wrong_in(record, file.start + at)
        yield item
        at += size
    yield Item("end", at, file.size - at, facts={"reason": "the file is full"})


def _wrong_in(record: Any, offset: int) -> str:
    found = []
    if record.physical_offset != offset:
        found.append(f"the record says that its offset is {record.physical_offset}")
    if not record.body_crc_ok:
        found.append("the CRC of the body is wrong")
    if record.record_crc_ok is False:
        found.append("the CRC of the record (__CRC32#) is wrong")
    return "; ".join(found)


# ---- form

def _json(file: StoreFile, item: Item, with_fields: bool) -> dict[str, object]:
    line: dict[str, object] = {"file": file.path, "kind": item.kind, "position": item.position, "size": item.size}
    if item.kind in ("record", "blank", "bad"):
        line |= item.facts
    elif file.kind in ("abort", "lock"):
        line["text"] = item.fields[0].meaning if item.fields else ""
    else:
        line |= {("recordSize" if name == "size" and file.kind == "consumequeue" else name): value
                 for name, value in formats.values(item.fields).items()} | item.facts
    if item.finding:
        line["finding"] = item.finding
    if with_fields:
        line["fields"] = [{"number": f.number, "name": f.name, "offset": f.offset, "bytes": f.data.hex(),
                           "meaning": f.meaning} for f in item.fields]
    return line


def _text(file: StoreFile, item: Item, form: str) -> str:
    v, facts = formats.values(item.fields), item.facts
    wrong = f"  !! {item.finding}" if item.finding else ""
    if item.kind == "record":
        shown = "" if "body" not in facts else body_line(facts, facts["body_size"], form)
        names = " ".join(f"{n}={printable(t)}" for n, t in facts["properties"].items())
        return (f"@{facts['offset']}  {item.size} bytes  {facts['topic']}/{facts['queue_id']}[{facts['queue_offset']}]  "
                f"{time_text(facts['store_timestamp'])}  {names}  {shown}".rstrip() + wrong)
    if item.kind in ("blank", "bad"):
        return f"@{facts['offset']}  {item.size} bytes  {'end of file' if item.kind == 'blank' else 'unreadable'}{wrong}"
    if item.kind == "end":
        return f"-- {facts['reason']} at {item.position}, {item.size} bytes left"
    if item.kind == "finding":
        return f"!! at {item.position}: {item.finding}"
    if file.kind == "consumequeue":
        what = "filler" if "filler" in facts else f"-> @{v['commitLogOffset']}  {v['size']} bytes  tagsCode={v['tagsCode']}"
        ext = f"  ext @{facts['ext_position']}" if "ext_position" in facts else ""
        return f"{facts['topic']}/{facts['queue_id']}[{facts['queue_offset']}]  {what}{ext}"
    if file.kind == "consumequeue_ext":
        bits = item.fields[4].data.hex() if len(item.fields) > 4 else ""
        return (f"@{item.position + file.start}  address={facts['address']}  {item.size} bytes  tagsCode={v['tagsCode']}  "
                f"{time_text(v['msgStoreTime'])}  bits={bits}{wrong}")
    if item.kind == "entry":
        return (f"#{facts['number']}  slot={facts['slot']}  hash={v['keyHash']}  -> @{v['phyOffset']}  "
                f"{time_text(facts['time'])}  previous={v['prevIndex']}{wrong}")
    if not item.fields:
        return "empty"
    return "  ".join([*(f"{f.name}={printable(f.meaning.partition(': ')[0])}" for f in item.fields),
                      *(f"{n}={x}" for n, x in facts.items())]) + wrong


def _hex_line(field: FieldValue) -> str:
    shown = field.data[:HEX_BYTES_SHOWN].hex(" ")
    more = f" … {len(field.data)} bytes" if len(field.data) > HEX_BYTES_SHOWN else ""
    return f"    {field.number:>2}  {field.name:<26}{field.offset:>6}  {shown + more:<24}  {printable(field.meaning)}"
