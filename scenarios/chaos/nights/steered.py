"""A random night in which drains are steered from other processes, and killed meanwhile."""

from __future__ import annotations

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED
from scenarios.chaos.drain import Pace, Process
from scenarios.chaos.nights.account import seen, traced
from scenarios.chaos.nights.lot import Lot, keys, record
from scenarios.chaos.stage import Report, Stage

MOST = 9  # This many requests are sent to one drain at most.
SLOWER = Pace(concurrency=20, latency_ms=40)  # It is slow, because a request takes a second.


def steered(stage: Stage) -> Report:
    """Set, pause, unpause and stop drains at random, and kill them. All laws must hold."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage, SLOWER) as lot:
        names = keys(chance)
        lot.write([record(chance, names) for _ in range(600 if stage.short else 2_000)])
        requests: dict[str, int] = {}

        def steer(process: Process) -> None:
            for _ in range(chance.randrange(1, MOST)):
                words = chance.choice(
                    [
                        ["set", f"concurrency={chance.choice([1, 7, 50, 300])}"],
                        ["set", f"rate={chance.choice(['50/s', '5000/s', 'none'])}"],
                        ["set", f"grace={chance.choice(['5s', '20s'])}"],
                        ["pause"],
                        ["unpause"],
                        ["stop"],
                    ]
                )
                other = lot.command(words[0], str(lot.plan), *words[1:], brokers=False)
                requests[words[0]] = requests.get(words[0], 0) + 1
                report.ensure(
                    other.ends() in (EXIT_DONE, EXIT_REFUSED), f"{words}: {other.output[-200:]}"
                )
                if not process.running:
                    return

        lot.takes_its_course(stage, report, EXIT_DONE, amid=steer, also=(EXIT_INTERRUPTED,))
        seen(traced(lot.trace), lot.expected).judge(report, lot.most_repeated(report))
        lot.check_group(report)
        report.remarks.append(f"requests: {requests}")
    return report
