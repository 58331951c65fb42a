"""A bad night, chapter by chapter, on brokers of its own."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from scenarios.brokers import Brokers
from scenarios.chaos.stage import Report, Stage

HEAD = (
    "chapter | times | exit codes | calls | repeated | each time | of the backlog | lost"
    " | out of order | at once | remarks | laws"
)


def play(
    prog: str,
    description: str | None,
    chapters: Mapping[str, Callable[[Stage], Report]],
    on_three: Collection[str] = (),
    *,
    on_spark: bool = False,
) -> None:
    """Play the chapters of the command line, and end with exit code 1 if a law was broken.

    The chapters in ``on_three`` get three brokers unless --brokers is given. All others get one.
    """
    given = _parser(prog, description, chapters, on_spark=on_spark).parse_args()
    remote = on_spark and given.remote
    reports: dict[str, Report] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running: dict[int, Brokers] = {}

        def brokers(count: int) -> Brokers:
            if count not in running:
                own = Path(folder) / f"{count}-brokers"
                made = Brokers(own, count, die_with_parent=True, print_line=print)
                running[count] = stack.enter_context(made)
            return running[count]

        print(f"seed {given.seed}", flush=True)
        for number, name in product(range(1, given.rounds + 1), given.only or chapters):
            chapter = chapters[name]
            # Each chapter has a random generator of its own, so that a seed plays it again without
            # the others.
            chance = random.Random(f"{given.seed} {number} {name}")
            on = brokers(given.brokers or (3 if name in on_three else 1))
            stage = Stage(on, Path(folder), chance, given.short, given.kills, remote)
            about, *_ = (chapter.__doc__ or "").split("\n\n")
            print(f"{name}: {' '.join(about.split())}", flush=True)
            begun_s = time.monotonic()
            played = chapter(stage)
            reports[name if given.rounds == 1 else f"{name} {number}"] = played
            print(f"  {played.line}  ({time.monotonic() - begun_s:.0f} s)", flush=True)
            for what in played.broken:
                print(f"  broken: {what}", flush=True)
    print(f"\n| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
    for name, each in reports.items():
        print(f"| {name} | {each.line} |")
    broken = [f"{name}: {what}" for name, each in reports.items() for what in each.broken]
    if broken:
        raise SystemExit("\n".join(["", "broken:", *broken]))


def _parser(
    prog: str, description: str | None, chapters: Collection[str], *, on_spark: bool
) -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "--short", action="store_true", help="play shorter chapters, with smaller backlogs"
    )
    parser.add_argument(
        "--only",
        choices=chapters,
        action="append",
        help="play only this chapter; repeat for several",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        choices=(1, 3),
        help="the number of brokers; by default as many as the chapter needs",
    )
    parser.add_argument(
        "--kills", type=int, help="how often a chapter kills, stalls or starts something"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each chapter is played")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    if on_spark:
        parser.add_argument("--remote", action="store_true", help="drain on Spark Connect servers")
    return parser
