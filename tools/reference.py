"""Pages of docs/reference/ that are made from the code: python tools/reference.py writes them; with names, only these.

commands: rmqstore, from argparse. errors: rmq_store/errors.py. metrics: what a store tells Prometheus. formats: the bytes of
every file, from rmq_store/codec/layout.py. exits: the tables of exit codes in docs/commands.md, from rmq_store/cli/exits.py.
findings: what verify reports, from services/integrity/findings.py and codec/bad.py. methods: docstrings of the main classes.
tests/docs/test_reference.py fails where a page is not what this makes.
"""
import argparse
import inspect
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
sys.path.insert(0, str(ROOT))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *([cell.replace("|", "&#124;").replace("\n", " ") for cell in row] for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]


# ---- the command line

def commands() -> str:
    from rmq_store.cli.exits import EXITS
    from rmq_store.cli.main import COMMANDS, build_parser

    parts = ["# Commands", "",
             "Every command of `rmqstore`, its arguments and its options. `rmqstore COMMAND --help` prints the same.", ""]
    (below,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    parts += ["[Commands and exit codes](../commands.md) says what each exit code means. The codes 64, 130 and 141 can end "
              "every command."]
    for name in COMMANDS:
        parts += ["", *_command(f"rmqstore {name}", below.choices[name], 2), "",
                  *table(["exit code", f"when `rmqstore {name}` ends with it"], [[str(c), w] for c, w in EXITS[name].items()])]
    return "\n".join(parts) + "\n"


def _command(name: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield ""
    yield parser.description or ""
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS and not isinstance(a, argparse._HelpAction)]
    groups = [a for a in actions if isinstance(a, argparse._SubParsersAction)]
    rows = [[_name(a), _help(parser, a)] for a in actions if a not in groups]
    if rows:
        yield ""
        yield from table(["argument", "meaning"], rows)
    for group in groups:
        said = {choice.dest: choice.help or "" for choice in group._choices_actions}
        for word, below in group.choices.items():
            below.description = below.description or said[word][:1].upper() + said[word][1:] + "."
            yield ""
            yield from _command(f"{name} {word}", below, level + 1)


def _name(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper())
    value = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"`{value}`" + {"*": " (any number)", "+": " (one or more)", "?": " (optional)"}.get(str(action.nargs), "")
    return ", ".join(f"`{text}{'' if action.nargs == 0 else ' ' + value}`" for text in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog} if action.help else ""


def exits() -> str:
    """The tables of docs/commands.md: what each code means, and when each command ends with it."""
    from rmq_store.cli.exits import EVERY, EXITS, MEANINGS

    codes = [code for code in MEANINGS if code not in EVERY]
    rows = [[f"`{name}`", *("-" if code not in of else "yes" if of[code] == MEANINGS[code] else of[code] for code in codes)]
            for name, of in EXITS.items()]
    return "\n".join([*table(["code", "meaning"], [[str(code), what] for code, what in MEANINGS.items()]), "",
                      f"The codes {', '.join(map(str, EVERY))} can end every command. The table has the other codes. "
                      '"yes" stands for the meaning above.', "",
                      *table(["command", *(f"{code} when" for code in codes)], rows)])


def put_exits(text: str) -> str:
    """A text of docs/commands.md with its tables as they have to be."""
    head, begin, rest = text.partition("<!-- exits: made by `python tools/reference.py exits` -->\n")
    return head + begin + exits() + "\n" + "".join(rest.partition("<!-- end of exits -->")[1:])


# ---- errors

def errors() -> str:
    from rmq_store import errors as module

    shown = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, module.RmqStoreError)]
    parts = ["# Errors", "", "Every exception that the store raises on purpose, from `rmq_store.errors`. All are subclasses of "
             "`RmqStoreError`, are raised in the thread of the caller, and can be pickled.", "",
             "The message of an error names the thing, its value, the limit and the cure."]
    for kind in shown:
        bases = ", ".join(f"[{base.__name__}](#{base.__name__.lower()})" if base in shown else f"`{base.__name__}`"
                          for base in kind.__bases__)
        parts += ["", f"## {kind.__name__}", "", f"Base classes: {bases}.", "", inspect.getdoc(kind) or ""]
        cure, status = vars(kind).get("cure"), vars(kind).get("status")
        parts += ["", f"Cure: {cure}."] if isinstance(cure, str) else []
        parts += ["", f"Status: `{status}`."] if status is not None else []
    return "\n".join(parts) + "\n"


# ---- metrics

def metrics() -> str:
    from rmq_store import MessageStore
    from rmq_store.metrics import BOUNDS, StoreCollector

    with tempfile.TemporaryDirectory() as place, MessageStore.open(f"{place}/s", profile="test") as store:
        store.put("T", b"x", wait=True)
        store.wait_dispatched(timeout=60)
        with store.consumer("G", ["T"]) as consumer:
            consumer.poll(timeout=60).ack()
            found = {family.name: family for family in StoreCollector(store).collect()}
    rows = []
    for name, family in sorted(found.items()):
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        suffix = "_total" if family.type == "counter" else ""
        rows.append([f"`{name}{suffix}`", family.type, ", ".join(f"`{label}`" for label in labels), f"{family.documentation}."])
    parts = ["# Metrics", "", "Every metric that `rmq_store.metrics` tells Prometheus (`pip install rmq_store[metrics]`). "
             "[Watching a store](../watching.md) shows how to publish them.", "",
             "Names that begin with `rocketmq_` are RocketMQ's and mean the same. The label `path` is the directory of the "
             "store.", "", *table(["metric", "type", "labels", "meaning"], rows), "",
             "The buckets of all histograms, in seconds: " + ", ".join(f"{bound:g}" for bound in BOUNDS) + "."]
    return "\n".join(parts) + "\n"


# ---- formats

_FILES = {
    "record": ("CommitLog record", "`commitlog/<20 digits>` holds records one behind the other. The name of a file is the "
               "log offset of its first byte. A host with IPv6 has 20 bytes and moves the fields behind it by 12 bytes. A "
               "record of version 2 has a topic length of two bytes."),
    "blank": ("End-of-file record", "The rest of a commit-log file that has no room for the next record."),
    "consume_queue_unit": ("ConsumeQueue entry", "`consumequeue/<topic>/<queue id>/<20 digits>` holds entries of {consume} "
                           "bytes. Entry n of a queue lies at byte {consume} × n of the queue's files."),
    "consume_queue_ext_unit": ("ConsumeQueueExt unit", "`consumequeue_ext/<topic>/<queue id>/<20 digits>`. A tagsCode in the "
                               "ConsumeQueue up to {ext} is an address here."),
    "index_header": ("IndexFile header", "`index/<17 digits>` holds a header of {header} bytes, the hash slots, then the "
                     "entries."),
    "index_slot": ("IndexFile slot", "One of {slot} bytes for each hash slot."),
    "index_entry": ("IndexFile entry", "One of {entry} bytes for each key of a message. Entry 0 is never used."),
    "checkpoint": ("Checkpoint", "`checkpoint` is a file of {checkpoint} bytes."),
    "batch_element": ("Batch element", "A message inside the body of a batch, as a producer sends it. The store does not keep "
                      "it in this form."),
}


def formats() -> str:
    from rmq_store.codec import _layout, layout

    sizes = {"consume": _layout.UNIT_SIZE, "ext": layout.EXT_ADDRESS_MAX, "header": _layout.INDEX_HEADER_SIZE,
             "slot": _layout.INDEX_SLOT_SIZE, "entry": _layout.INDEX_ENTRY_SIZE, "checkpoint": _layout.CHECKPOINT_SIZE}
    parts = ["# Formats", "",
             "The bytes of every file that RocketMQ and this store share. All integers are big-endian and signed. "
             "`rmqstore dump --hex FILE` names these fields in a file.", ""]
    drawing = (layout.__doc__ or "").partition("12 bytes):\n")[2].partition("\nAll integers")[0]
    parts += ["The layout of a record with IPv4 hosts:", "", "```text", inspect.cleandoc(drawing.strip("\n")).rstrip(), "```"]
    for name, fields in layout.LAYOUTS.items():
        title, text = _FILES[name]
        rows = [[str(f.number), f"`{f.name}`", "" if f.offset is None else str(f.offset), "" if f.size is None else str(f.size),
                 f.meaning] for f in fields]
        parts += ["", f"## {title}", "", text.format(**sizes), "", *table(["no.", "field", "offset", "bytes", "meaning"], rows)]
    hexes = [[f"`0x{code & 0xFFFFFFFF:08X}`", str(code), f"{what}"] for code, what in layout.MAGIC_NAMES.items()]
    flags = {**layout.FLAG_NAMES, **{bit: f"transaction {what}" for bit, what in layout.TRANSACTION_NAMES.items()},
             **{bit: f"compressed by {what}" for bit, what in layout.COMPRESSION_NAMES.items()}}
    parts += ["", "## Magic codes", "", *table(["code", "as an integer", "meaning"], hexes), "", "## Bits of sysFlag", "",
              "The transaction is the value of the bits `0xC`, the kind of compression that of `0x700`.", "",
              *table(["value", "meaning"], [[f"`0x{bit:X}`", what] for bit, what in sorted(flags.items())]), "",
              "[Upgrading](../upgrading.md) lists the files that this store alone writes, and what they mean for a broker."]
    return "\n".join(parts) + "\n"


# ---- findings

def findings() -> str:
    from rmq_store.codec.bad import Bad
    from rmq_store.services.integrity.findings import KINDS

    kinds = [[f"`{name}`", kind.severity, kind.meaning] for name, kind in KINDS.items()]
    reasons = [[bad.text, f"`{bad.finding}`", bad.meaning] for bad in Bad]
    parts = ["# Findings", "",
             "Every kind of finding that `rmqstore verify`, `scrub`, `repair` and Spark's audit report, and every reason why a "
             "record is bad. [Integrity](../integrity.md) shows the commands.", "",
             "The severity `corrupt` means that bytes of the log are not what was put. `finding` means that the log is good, "
             "but a file that is derived from the log is not. `note` means that something is unusual, but no fault.", "",
             *table(["kind", "severity", "meaning"], kinds), "", "## Bad records", "",
             "Recovery ends at the first bad record, and its event names the reason. Copies and Spark name the same reasons in "
             "errors, and in the column `kind` of Spark's view `errors`.", "",
             *table(["reason", "kind of finding", "meaning"], reasons)]
    return "\n".join(parts) + "\n"


# ---- classes

def methods() -> str:
    from rmq_store import Message, MessageStore
    from rmq_store.access.reader._get import GetResult
    from rmq_store.access.writer._put import PutResult
    from rmq_store.services.consumer.batch import Batch
    from rmq_store.services.consumer.consumer import Consumer

    parts = ["# Methods and attributes", "",
             "Every public name of the classes that a program works with. `help(rmq_store.MessageStore.put)` prints all of a "
             "docstring: arguments, units, errors, durability and thread-safety. `AsyncMessageStore` has the methods of "
             "`MessageStore` to await. [Options](../options.md) are the keywords of `open`."]
    for kind in (MessageStore, Message, GetResult, PutResult, Consumer, Batch):
        rows = [[f"`{kind.__name__}.{name}{'()' if callable(getattr(kind, name)) else ''}`", _first_sentence(kind, name)]
                for name in dir(kind) if not name.startswith("_")]
        parts += ["", f"## {kind.__name__}", "", *table(["name", "what it is"], rows)]
    return "\n".join(parts) + "\n"


def _first_sentence(kind: type, name: str) -> str:
    value = getattr(kind, name)
    if isinstance(value, bool | int | str):         # what it is until the store opens
        return f"An attribute: {type(value).__name__}."
    text = inspect.getdoc(value) or ""
    if "(self" in text.partition("\n")[0]:          # Cython's signature
        text = text.partition("\n")[2].lstrip()
    words = " ".join(text.partition("\n\n")[0].split())
    return (words.partition(". ")[0].rstrip(".") + ".") if words else "A method." if callable(value) else "An attribute."


MADE: dict[str, Callable[[], str]] = {"commands": commands, "errors": errors, "metrics": metrics, "formats": formats,
                                      "findings": findings, "methods": methods}


def page(name: str) -> str:
    """The text of docs/reference/<name>.md."""
    head, _, rest = MADE[name]().partition("\n")
    return f"{head}\n\n<!-- Made by `python tools/reference.py {name}`. -->\n{rest}"


def main() -> None:
    for name in sys.argv[1:] or [*MADE, "exits"]:
        if name == "exits":
            commands_page = ROOT / "docs" / "commands.md"
            commands_page.write_text(put_exits(commands_page.read_text()))
        else:
            (PAGES / f"{name}.md").write_text(page(name))


if __name__ == "__main__":
    main()
