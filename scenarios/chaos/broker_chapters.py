"""The chapters in which brokers are killed or stall, have no leader, or have a log that was cut."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNRESUMABLE,
)
from drainer.store.plan_file import PlanFile
from scenarios.brokers import Broker
from scenarios.chaos.cut import CUT_AT, LATER, WRITTEN, CutLog
from scenarios.chaos.drain import Backlog, Pace, Process, Spread, until
from scenarios.chaos.letters import delete_letters, read_letters
from scenarios.chaos.stage import KILLED, SLOW, WIDE, Report, Stage
from scenarios.chaos.trace import silence_around

ABORTED = -signal.SIGABRT
STALL_S = 20.0
AWAY_BEFORE = 0.3  # This share of the drains starts while a leader is stopped.
STOPPED = 0.7  # This share of the brokers that go away is stopped, and the others are killed.
TRIES = 30  # A drain that is refused while a leader is away is tried this often.
GOES_ON_WITHIN_S = 10.0
CUT = Pace(concurrency=50, latency_ms=60)  # The drain takes 42 s, which is enough for an election.
SMALL = Spread(partitions=12, fan_out=10)
LETTERS = Spread(partitions=24, fan_out=2)
SEVERAL = Spread(partitions=6)


def leader_away(stage: Stage) -> Report:
    """Stop and kill leaders while drains start, run and end. No partition may be skipped."""
    report = Report(0)
    refusals: Counter[str] = Counter()
    starts = stage.times(6, 30)
    while report.times < starts:
        replicas = stage.chance.choice([1, -1])
        spread = Spread(SMALL.partitions, replicas, SMALL.fan_out)
        with stage.backlog(240, SLOW, spread) as backlog:
            report.sub_messages += backlog.sub_messages
            for _ in range(TRIES):
                process = _begin_amid_trouble(stage, backlog)
                report.times += 1
                code = report.ends(process, EXIT_DONE, EXIT_REFUSED, EXIT_INTERRUPTED)
                report.ensure("-1001" not in process.output, f"it printed {process.output}")
                if code == EXIT_DONE:
                    break
                refusals[process.output.strip().partition("\n")[0][:100]] += 1
            report.ensure(code == EXIT_DONE, f"not done after {TRIES} starts")
            if code == EXIT_DONE:
                lost = report.judge(backlog).lost
                checked = backlog.command("plan", "verify", str(backlog.plan))
                checked.ends()
                report.remarks += [f"{lost} lost, `plan verify` gives {checked.ends()}"] * bool(
                    lost
                )
    report.remarks += [f"{count} x {error}" for error, count in refusals.most_common()]
    return report


def first_letters(stage: Stage) -> Report:
    """Write the first letters to a new topic, while a broker is killed in every second drain.

    Each letter that is counted as dead must be in the topic. Even without a kill that is a test,
    because the leaders of a new topic are not ready at once.
    """
    report = Report(0)
    dead = found = copies = 0
    for number in range(stage.times(6, 60)):
        with stage.backlog(240, WIDE, LETTERS) as backlog:
            report.sub_messages += backlog.sub_messages
            letters = f"{backlog.topic}.dead"
            process = backlog.begin(
                *("--on-failure", "dead-letter", "--tune", f"dead-letter-topic={letters}"),
                *("--retries", "0", "--tune", "breaker=off", "--set", "dead=1"),
            )
            if number % 2 == 0:
                backlog.at_work(process)
                _kill_one(stage)
                report.times += 1
            while report.ends(process, EXIT_DEAD_LETTERS, EXIT_INTERRUPTED) == EXIT_INTERRUPTED:
                process = backlog.begin()
            report.judge(backlog)
            counted = PlanFile(backlog.plan).load().plan.account.counts()[1].dead
            ids = read_letters(stage.settings, letters)
            report.ensure(counted == len(ids), f"{counted} counted dead, {len(ids)} in the topic")
            dead += counted
            found += len(ids)
            copies += ids.total() - len(ids)
            delete_letters(stage.settings, letters)
    report.remarks.append(f"{dead:,} counted dead, {found:,} letters, {copies} of them twice")
    return report


def _kill_one(stage: Stage) -> None:
    broker, chance = stage.chance.choice(stage.brokers.each), stage.chance
    time.sleep(chance.uniform(0, 0.3))
    broker.kill()
    time.sleep(chance.uniform(0, 1))
    broker.start()


def cut_while_reading(stage: Stage) -> Report:
    """Cut the log while most of it is unread, and let it grow again. The drain must end with exit
    code 8."""
    return _cut(stage, "--tune", "buffer=128KiB")


def cut_when_read(stage: Stage) -> Report:
    """Cut the log once all of it was fetched, and let it grow again. The drain must end with exit
    code 8."""
    return _cut(stage)


def _cut(stage: Stage, *more: str) -> Report:
    with CutLog.on(stage, CUT) as log:
        report = Report(log.backlog.sub_messages, times=1)
        process = log.backlog.begin("--retries", "0", *more)
        log.backlog.at_work(process, 2_000)
        report.ensure(process.running, "it had ended before the log was cut")
        _cut_and_grow(log, report)
        report.ends(process, EXIT_UNRESUMABLE)
        report.ensure("unclean leader election" in process.output, f"it printed {process.output}")
        _ends_in_doubt(report, log)
        return report


def cut_between_runs(stage: Stage) -> Report:
    """Kill the drain, cut the log, and let it grow again. The resume must refuse with exit code
    8."""
    with CutLog.on(stage, CUT) as log:
        report = Report(log.backlog.sub_messages, times=1)
        process = log.backlog.begin()
        log.backlog.at_work(process, 2_000)
        process.send(signal.SIGKILL)
        report.ends(process, KILLED)
        _cut_and_grow(log, report)
        _ends_in_doubt(report, log)
        process = log.backlog.begin()
        report.ends(process, EXIT_UNRESUMABLE)
        report.ensure("unclean leader election" in process.output, f"it printed {process.output}")
        return report


def _cut_and_grow(log: CutLog, report: Report) -> None:
    end = log.cut()
    report.ensure(end == CUT_AT, f"the log was cut at {end}, not at {CUT_AT}")
    log.backlog.grow(LATER)
    report.remarks.append(
        f"cut from {WRITTEN} to {end}, then {LATER} new; group at {log.committed}"
    )


def _ends_in_doubt(report: Report, log: CutLog) -> None:
    checked = log.backlog.command("plan", "verify", str(log.backlog.plan))
    report.ends(checked, EXIT_FOUND)
    report.remarks.append(f"`plan verify` gives {checked.ends()}, group at {log.committed}")


def stalled(stage: Stage) -> Report:
    """Stall one of the brokers for 20 s, again and again. No process may abort, and drains must
    continue."""
    report = Report(0)
    beside: Counter[tuple[str, int]] = Counter()
    with stage.backlog(60, SLOW, SEVERAL) as done:
        report.ends(done.begin(), EXIT_DONE)
        with _commands_beside(done, beside):
            for _ in range(stage.times(2, 50)):
                with stage.backlog(900, SLOW, SEVERAL) as backlog:
                    report.sub_messages += backlog.sub_messages
                    process = backlog.begin()
                    time.sleep(stage.chance.uniform(0, 8))
                    _stall(stage.chance.choice(stage.brokers.each))
                    report.times += 1
                    while (code := report.ends(process, EXIT_DONE, EXIT_REFUSED)) == EXIT_REFUSED:
                        process = backlog.begin()  # The broker stalled before anything had begun.
                    if code != EXIT_DONE:
                        report.finish(backlog)  # It shows what was lost.
                    report.judge(backlog)
    ends = (f"{what} {code} x{times}" for (what, code), times in sorted(beside.items()))
    report.remarks.append(f"beside it: {', '.join(ends)}")
    aborts = sum(times for (_, code), times in beside.items() if code == ABORTED)
    report.ensure(not aborts, f"{aborts} commands beside it died by SIGABRT")
    report.remarks.append(f"{report.codes[ABORTED]} of {report.times} drains died by SIGABRT")
    return report


def broker_stalled(stage: Stage) -> Report:
    """Stall all brokers for 20 s, then also kill and start them. The drain must wait, and then
    continue."""
    stalls = stage.times(2, 6)
    with stage.backlog(900 * stalls, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        process = backlog.begin()
        waits: list[tuple[float, float]] = []
        for number in range(stalls):
            if not backlog.at_work(process, 4_000):
                report.ensure(False, f"it ended before stall {number + 1}")
                break
            if number % 2 == 0:
                _stall(*stage.brokers.each)
            else:
                _stall_and_kill(stage)
            report.times += 1
            waited = _goes_on_after(backlog, process)
            report.ensure(waited is not None, f"it did not go on after stall {number + 1}")
            waits += [waited] if waited else []
        report.ends(process, EXIT_DONE)
        report.judge(backlog)
        report.remarks += [f"quiet {q:.1f} s, went on {w:.1f} s after the return" for q, w in waits]
        latest_s = max((waited_s for _, waited_s in waits), default=0)
        report.ensure(latest_s < GOES_ON_WITHIN_S, f"it went on only after {latest_s:.1f} s")
        return report


def _goes_on_after(backlog: Backlog, process: Process) -> tuple[float, float] | None:
    """Return the seconds without a call until now, when the brokers are back, and from now to the
    next call.

    Return None if no call comes.
    """
    back_s, before = time.monotonic(), backlog.traced_bytes
    with suppress(TimeoutError):
        if until(lambda: backlog.traced_bytes > before, lambda: not process.running):
            return silence_around(backlog.trace, back_s)
    return None


def _stall(*brokers: Broker) -> None:
    for broker in brokers:
        broker.pause()
    try:
        time.sleep(STALL_S)
    finally:
        for broker in brokers:
            broker.resume()


def _stall_and_kill(stage: Stage) -> None:
    _stall(*stage.brokers.each)
    stage.brokers.kill()
    stage.brokers.launch()
    stage.brokers.wait_ready()


def _is_over(process: Process) -> Callable[[], bool]:
    return lambda: not process.running


def _begin_amid_trouble(stage: Stage, backlog: Backlog) -> Process:
    """Run a drain to its end while one broker after the other goes away and comes back.

    This must be called in the thread that started the brokers, because they die with it.
    """
    chance = stage.chance
    broker = chance.choice(stage.brokers.each)
    if before := chance.random() < AWAY_BEFORE:
        broker.pause()
    process = backlog.begin()
    if not before:
        # This is amid the requests of a start, which take a third of a second.
        sockets = chance.randint(3, 8)
        until(lambda: process.sockets >= sockets or backlog.traced_bytes > 0, _is_over(process))
        process.ends_within(chance.uniform(0, 0.06))
        broker.pause()
    process.ends_within(chance.uniform(0.5, 6))
    broker.resume()
    while not process.ends_within(chance.uniform(0, 1.5)):
        broker = chance.choice(stage.brokers.each)
        if chance.random() < STOPPED:
            broker.pause()
            process.ends_within(chance.uniform(0.5, 6))
            broker.resume()
        else:
            broker.kill()
            process.ends_within(chance.uniform(0, 2))
            broker.start()
    return process


@contextmanager
def _commands_beside(done: Backlog, ends: Counter[tuple[str, int]]) -> Iterator[None]:
    """Verify, undo and resume in turns the plan of a drain that is done, while brokers are in
    trouble."""
    over = threading.Event()
    plan = str(done.plan)
    commands = {
        "verify": ("plan", "verify", plan),
        "undo": ("plan", "undo", plan, "--yes"),
        "resume": (
            *("--quiet", "resume", plan, *done.named_handler, "--yes"),
            *("--set", f"trace={done.trace}"),
        ),
    }

    def repeat() -> None:
        while True:
            for name, words in commands.items():
                if over.is_set():
                    return
                ends[name, done.command(*words).ends()] += 1

    repeating = threading.Thread(target=repeat)
    repeating.start()
    try:
        yield
    finally:
        over.set()
        repeating.join()


BROKER_CHAPTERS: dict[str, Callable[[Stage], Report]] = {
    "leader-away": leader_away,
    "first-letters": first_letters,
    "cut-reading": cut_while_reading,
    "cut": cut_when_read,
    "cut-resume": cut_between_runs,
    "stall": stalled,
    "broker-stalled": broker_stalled,
}
ON_THREE = ("leader-away", "cut-reading", "cut", "cut-resume", "stall")
