"""A random night with ``--divert``: a flood goes to the letter topic, and comes back by a
redrive."""

from __future__ import annotations

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED
from scenarios.chaos.letters import delete_letters, read_letters
from scenarios.chaos.nights.account import seen, traced
from scenarios.chaos.nights.lot import Lot, keys, record
from scenarios.chaos.stage import KILLED, Report, Stage

FLOOD = "key =~ 'vip.*'"


def diverted(stage: Stage) -> Report:
    """Divert sub-messages to letters without a call. Only a redrive may handle them."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot:
        letters = f"{lot.topic}.dead"
        names = [*keys(chance), *(f"vip-{number}" for number in range(chance.choice([1, 20])))]
        lot.write([record(chance, names) for _ in range(400 if stage.short else 1_500)])
        everything = lot.expected
        flood = {place for place, name in everything.items() if name.startswith("vip")}
        lot.expected = {place: n for place, n in everything.items() if place not in flood}
        lot.words_of_run += ("--divert", FLOOD, "--tune", f"dead-letter-topic={letters}")
        lot.takes_its_course(stage, report, EXIT_DONE)
        seen(traced(lot.trace), lot.expected).judge(report, lot.most_repeated(report))
        lot.check_group(report)
        found = read_letters(stage.settings, letters)
        report.ensure(set(found) == flood, f"{len(found)} letters of {len(flood)}")
        report.remarks.append(f"{len(flood)} diverted, {found.total() - len(found)} letters twice")
        _redrive(stage, report, lot, letters)
        seen(traced(lot.trace), everything).judge(report, lot.most_repeated(report))
        delete_letters(stage.settings, letters)
    return report


def _redrive(stage: Stage, report: Report, lot: Lot, letters: str) -> None:
    """Redrive the letters to the handler, with kills."""
    plan = lot.plan.with_suffix(".redrive")
    words = ["--yes", *lot.words]
    begin = ["redrive", "--dead-letter-topic", letters, "--plan", str(plan), *lot.handler_words]
    for number in range(4):
        resume = ["resume", str(plan), *lot.handler_words]
        process = lot.command("--quiet", *(resume if plan.exists() else begin), *words)
        if number < 3 and not process.ends_within(stage.chance.uniform(0.2, 1.5)):
            process.kill()
            report.times += 1
        if report.ends(process, KILLED, EXIT_DONE, EXIT_INTERRUPTED) == EXIT_DONE:
            return
