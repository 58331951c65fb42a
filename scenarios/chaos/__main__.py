"""Takes drains through a bad night, chapter by chapter, on a broker of its own.

After each chapter: what was lost, out of order or repeated. Ends with 1 when a law broke.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from drainer.sandbox import Broker
from scenarios.chaos.chapters import CHAPTERS
from scenarios.chaos.stage import Stage, Told

HEAD = (
    "chapter | times | exit codes | repeated | each time | of the backlog | lost | out of order"
    " | remarks | laws"
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="about three minutes, on less")
    parser.add_argument("--only", choices=CHAPTERS, action="append", help="some of the chapters")
    parser.add_argument("--kills", type=int, help="of the first chapter; default: 20, short: 6")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    kills = given.kills or (6 if given.short else 20)
    told: dict[str, Told] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True, say=print) as broker,
    ):
        stage = Stage(broker, Path(folder), random.Random(given.seed), given.short, kills)
        print(f"seed {given.seed}", flush=True)
        for name in given.only or CHAPTERS:
            chapter = CHAPTERS[name]
            print(f"{name}: {(chapter.__doc__ or '').splitlines()[0]}", flush=True)
            begun_s = time.monotonic()
            told[name] = chapter(stage)
            print(f"  {told[name].line}  ({time.monotonic() - begun_s:.0f} s)", flush=True)
    print(f"\n| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
    for name, each in told.items():
        print(f"| {name} | {each.line} |")
    broken = [f"{name}: {what}" for name, each in told.items() for what in each.broken]
    if broken:
        raise SystemExit("\n".join(["", "broken:", *broken]))


if __name__ == "__main__":
    main()
