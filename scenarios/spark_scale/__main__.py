"""Measures gains and costs of Spark on one machine, and computes from them what a cluster would do.

Its chapters are: reading one partition by more and more tasks; draining one backlog on more and
more slots of the same cores, with messages of uneven size; draining in one process and on Spark, if
the handler waits, if it computes, and if ``split`` does; a hot lane that moves; sub-messages with
two sub-keys; 50 slices, and what they leave on disk; memory by the size of backlog and slice; the
model of a cluster. Figures are kept in a file, so that chapters can be run one by one, and the
chart has all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from scenarios.spark_scale import against, connected, memory, model, moving, reading, slices, slots
from scenarios.spark_scale.chart import draw
from scenarios.spark_scale.drains import Bench, bench


class Arguments(argparse.Namespace):
    """The arguments of the command line."""

    master: str
    times: int
    tasks: list[int]
    slots: list[int]
    load: list[str]
    case: list[str]
    only: list[str]
    figures: Path
    chart: Path


CHAPTERS: dict[str, Callable[[Bench, Arguments], dict[str, Any] | None]] = {
    "reading": lambda made, given: reading.compare(made, given.master, given.tasks, given.times),
    "slots": lambda made, given: slots.compare(made, given.load, given.slots, given.times),
    "against": lambda made, given: against.compare(made, given.case, given.master, given.times),
    "moving": lambda made, _: moving.compare(made),
    "connected": lambda made, given: connected.compare(made, given.master, given.times),
    "slices": lambda made, _: slices.compare(made),
    "memory": lambda made, given: memory.compare(made, given.master),
    "model": lambda made, _: model.compare(made),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.spark_scale", description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--times", type=int, default=1, help="how often each case is measured, in turns"
    )
    parser.add_argument(
        "--tasks", type=int, nargs="+", default=[1, 2, 4], help="the numbers of tasks that read"
    )
    parser.add_argument(
        "--slots",
        type=int,
        nargs="+",
        default=[2, 8, 24, 64],
        help="the numbers of slots, as in local[N]",
    )
    parser.add_argument("--load", nargs="+", choices=slots.LOADS, default=list(slots.LOADS))
    parser.add_argument("--case", nargs="+", choices=against.CASES, default=list(against.CASES))
    parser.add_argument("--only", nargs="+", choices=CHAPTERS, default=list(CHAPTERS))
    parser.add_argument("--figures", type=Path, default=Path("spark_scale.json"))
    parser.add_argument("--chart", type=Path, default=Path("spark_scale.svg"))
    given = parser.parse_args(namespace=Arguments())
    figures = orjson.loads(given.figures.read_bytes()) if given.figures.exists() else {}
    with bench() as made:
        for name in given.only:
            print(f"\n## {name}\n", flush=True)
            figures[name] = figures.get(name, {}) | (CHAPTERS[name](made, given) or {})
            given.figures.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    draw(figures, given.chart)


if __name__ == "__main__":
    main()
