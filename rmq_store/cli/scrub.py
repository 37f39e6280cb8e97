"""`rmqstore scrub`: reads every sealed file of a log and holds it against its manifest, paced, beside a running store.

Writes nothing, but for --resume and --make-manifests.
"""
import argparse
from collections import Counter

from rmq_store.cli.common import keywords, store_arguments
from rmq_store.cli.output import Output
from rmq_store.cli.verify import Bar, rate, show, summary
from rmq_store.services.integrity.scrubbing import scrub


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("--rate", type=float, default=64.0, metavar="MIB", help="read at most this many MiB per second, 0 "
                        "means no limit (default %(default)s)")
    parser.add_argument("--resume", action="store_true", help="continue where the last scrub with --resume stopped; the "
                        "progress is kept in STORE/.manifest/scrub.json")
    parser.add_argument("--make-manifests", action="store_true", help="make manifests in STORE/.manifest/ for intact files "
                        "that lack one, files of a Java broker too")


def run(args: argparse.Namespace, out: Output) -> int:
    with Bar() as bar:
        result = scrub(args.store, bytes_per_s=rate(args.rate), resume=args.resume, make_manifests=args.make_manifests,
                       progress=bar.at, **keywords(args))
    seen: Counter[str] = Counter(f.severity for f in result.findings)
    for finding in result.findings:
        show(finding, out)
    if result.resumed_at is not None:
        out.say(f"continued at offset {result.resumed_at}, where an earlier scrub stopped")
    out.say(f"read {result.files} sealed files, {result.bytes} bytes; made {result.manifests_made} manifests")
    return summary(args.store, seen, Counter(f.kind for f in result.findings), out)
