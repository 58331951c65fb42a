"""A random night in which one process and Spark take turns by chance, each killed in the middle of
its work."""

from __future__ import annotations

import signal

from drainer.errors import EXIT_DONE
from scenarios.chaos.nights.account import seen, traced
from scenarios.chaos.nights.lot import Lot, keys, record
from scenarios.chaos.stage import KILLED, Report, Stage
from scenarios.spark_chaos.place import ALONE, Place


def engines(stage: Stage) -> Report:
    """Resume on either engine in any order, with kills. Each run must continue where the one before
    was killed."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot, Place.of(stage, ALONE, {}) as place:
        names = keys(chance)
        lot.write([record(chance, names) for _ in range(1_000 if stage.short else 3_000)])
        report.sub_messages = len(lot.expected)
        on = {"process": ("--engine", "process"), "spark": place.words(lot.plan)}
        played = []
        for _ in range(stage.times(3, 6)):
            engine = chance.choice([*on])
            process = lot.starts(*on[engine])
            if not lot.at_work(process, chance.randrange(500)):
                report.ends(process, EXIT_DONE)
                break
            process.ends_within(chance.uniform(0, 0.5))
            played.append(engine)
            process.send(signal.SIGKILL)
            report.ends(process, KILLED, EXIT_DONE)
            report.times += 1
        report.ends(lot.starts(*on[chance.choice([*on])]), EXIT_DONE)
        seen(traced(lot.trace), lot.expected).judge(report)
        lot.check_group(report)
        report.remarks.append(f"killed on {', '.join(played)}")
    return report
