"""`rmqstore config`: which values hold and where each came from (show), the profiles (profiles), a broker.conf as our TOML
(convert). Reads no message; the main thread only."""
import argparse
import os
import textwrap
from typing import Any

from rmq_store.cli.common import PATH, keywords, option_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.config import sources, toml
from rmq_store.config.load import resolve
from rmq_store.config.options import BY_NAME, BY_UPSTREAM, Option
from rmq_store.errors import ConfigError
from rmq_store.log.recovery.places import fit_sizes, infer_sizes
from rmq_store.services.timer.service import kept_precision


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    show = commands.add_parser("show", help="list each option with its value and its origin")
    show.add_argument("store", type=PATH, nargs="?", metavar="STORE", help="a store; its files determine some sizes")
    show.add_argument("--changed", action="store_true", help="only options that do not have the default")
    option_arguments(show)
    table = commands.add_parser("options", help="list each option with its meaning, range, default and RocketMQ's names")
    table.add_argument("names", nargs="*", metavar="NAME", help="only these options, by their names or RocketMQ's names")
    table.add_argument("--json", action="store_true", help="JSON lines instead of text")
    table.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    profiles = commands.add_parser("profiles", help="list the profiles and the options that each sets")
    profiles.add_argument("--json", action="store_true", help="JSON lines instead of text")
    profiles.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    convert = commands.add_parser("convert", help="print a configuration, for example a broker.conf, as TOML")
    convert.add_argument("file", type=PATH, metavar="FILE", help="file to read; other sources except the profile are ignored")
    convert.add_argument("--profile", type=PATH, metavar="NAME", help="a profile that the file overrides")
    convert.add_argument("--json", action="store_true", help="one JSON object instead of TOML")
    convert.add_argument("-v", "--verbose", action="store_true", help="also list the ignored keys, on standard error")


def run(args: argparse.Namespace, out: Output) -> int:
    return {"show": _show, "options": _options, "profiles": _profiles, "convert": _convert}[args.what](args, out)


def _show(args: argparse.Namespace, out: Output) -> int:
    given = keywords(args)
    root = None if args.store is None else os.path.abspath(args.store)
    options = resolve(given.pop("profile", None), given, root, config=given.pop("config", None), environment=os.environ)
    if root is not None:
        options = fit_sizes(root, options.inferred(infer_sizes(root, options) | kept_precision(root)))
    plain = resolve(None)
    rows = [(option, options[name]) for name, option in BY_NAME.items() if not args.changed or options[name] != plain[name]]
    if out.as_json:
        for option, value in rows:
            out.record({"option": option.name, "value": value, "origin": options.origin(option.name), "change": option.change,
                        "unit": option.unit, "upstream": list(option.upstream), "text": option.text})
    else:
        out.table(("option", "change", "origin", "value"),
                  [(o.name, o.change, options.origin(o.name), text_of(o, v)) for o, v in rows])
    return FINE


def _options(args: argparse.Namespace, out: Output) -> int:
    wanted = [BY_NAME.get(name) or BY_UPSTREAM.get(name) for name in args.names] or list(BY_NAME.values())
    for name, option in zip(args.names, wanted, strict=False):
        if option is None:
            resolve(None, {name: ""})       # the error that names the nearest one, or says what became of it
            raise ConfigError(f"option {name} is known but has no effect here: leave it out; docs/options.md gives the reason")
    for option in filter(None, wanted):
        fields = {"option": option.name, "default": option.default, "range": option.span(), "unit": option.unit,
                  "change": option.change, "upstream": list(option.upstream), "text": option.text}
        if out.as_json:
            out.record(fields)
            continue
        default = text_of(option, option.default) if option.default is not None else f"none: {option.none}"
        out.line(f"{option.name} = {default}    ({option.span()}; {option.change})")
        out.line(textwrap.fill(option.text, 100, initial_indent="    ", subsequent_indent="    "))
        if option.upstream:
            out.line(f"    RocketMQ: {', '.join(option.upstream)}")
    return FINE


def _profiles(args: argparse.Namespace, out: Output) -> int:
    names = [(name, "built in") for name in sources.profile_names()]
    names += [(name, sources.user_profiles()) for name in sources.user_profile_names() if name not in dict(names)]
    for name, place in names:
        profile = sources.profile(name)
        resolve(name)       # says so if it is no good
        if out.as_json:
            out.record({"profile": name, "place": place, "description": profile.description, "options": profile.entries})
            continue
        out.line(f"{name}  ({place})")
        if profile.description:
            out.line(f"    {profile.description}")
        for key, value in profile.entries.items():
            out.line(f"    {key} = {toml.value(value)}")
    out.say()
    out.say(f"Put your own profiles into {sources.user_profiles()} as NAME.toml, or give a path")
    return FINE


def _convert(args: argparse.Namespace, out: Output) -> int:
    options = resolve(args.profile, config=args.file)
    given = [name for name in options if options.origin(name).startswith(("file ", "profile "))]
    if out.as_json:
        out.record({name: options[name] for name in given})
    else:
        out.line(f"# from {args.file}")
        for line in toml.lines({n: options[n] for n in given}):
            out.line(line)
    return FINE


def text_of(option: Option, value: Any) -> str:
    """A value for people, without its unit where there is none."""
    if value is None:
        return f"none: {option.none}"
    if isinstance(value, bool):
        return str(value).lower()
    if option.kind == "paths" and isinstance(value, tuple):
        return ",".join(value) or "none"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) + (" ms" if option.kind == "levels" else "")
    return f"{value} {option.unit}".rstrip()
