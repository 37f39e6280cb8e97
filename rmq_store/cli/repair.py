"""`rmqstore repair`: tells what can be done about a damaged store (--dry-run), and does it, step by step, saying each.

Nothing is deleted: what is replaced lies in STORE/.salvage/ afterwards. What is left decides the exit code (exits.py).
"""
import argparse

from rmq_store.cli.common import keywords, store_arguments
from rmq_store.cli.exits import CORRUPT, FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.cli.verify import show
from rmq_store.errors import ConfigError
from rmq_store.services.integrity.repair import Step, repair
from rmq_store.services.integrity.undoing import undo
from rmq_store.store import MessageStore


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="write nothing, only list the steps")
    parser.add_argument("--restore", action="store_true", help="also put messages again that earlier recoveries cut off and "
                        "kept in .salvage/ (as new messages, at the end of their queues)")
    parser.add_argument("--undo", action="store_true", help="undo the last repair: every file gets its earlier place and "
                        "content")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.undo:
        return _undo(args, out)

    def say(step: Step) -> None:
        if out.as_json:
            out.record({"step": step.kind, **{k: v for k, v in step.as_dict().items() if k != "kind"}, "dry_run": args.dry_run})
        else:
            where = "" if step.offset is None else f" at {step.offset}"
            count = "" if step.count is None else f" ({step.count} messages)"
            would = "would " if args.dry_run and step.kind != "none" else ""
            out.line(f"{would}{step.kind}: {step.path}{where}: {step.detail}{count}")

    result = repair(args.store, dry_run=args.dry_run, restore=args.restore, say=say, open_store=MessageStore.open,
                    **keywords(args))
    for finding in result.left + [f for f in result.findings if f.kind == "salvaged" and not args.restore]:
        show(finding, out)
    if args.dry_run:
        out.say("nothing to repair" if not result.steps else f"{len(result.steps)} steps; nothing was written")
        return FINDINGS if result.steps else FINE
    out.say(f"{len(result.steps)} steps, {len(result.left)} findings left")
    return CORRUPT if any(f.severity == "corrupt" for f in result.left) else FINDINGS if result.left else FINE


def _undo(args: argparse.Namespace, out: Output) -> int:
    def say(step: str, path: str) -> None:
        if out.as_json:
            out.record({"undo": step, "path": path})
        else:
            out.line(f"put back: {path}")

    if args.dry_run or args.restore:
        raise ConfigError("--undo undoes a repair: give it without other options of repair")
    undo(args.store, say=say, open_store=MessageStore.open, **keywords(args))
    out.say("undid the last repair; the files that it made are kept in .salvage/")
    return FINE
