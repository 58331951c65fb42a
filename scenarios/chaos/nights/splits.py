"""A random night with messages that ``split`` rejects, at the head, at the tail and between."""

from __future__ import annotations

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_HALTED
from scenarios.chaos.letters import delete_letters, read_letters
from scenarios.chaos.nights.account import seen, traced
from scenarios.chaos.nights.lot import PARTITIONS, Lot, Record, keys, record
from scenarios.chaos.stage import Report, Stage

BAD = (b"", b"no JSON", b"{}", b'{"documents": 7}', b"[]")


def split_failures(stage: Stage) -> Report:
    """Put bad messages at the head and the tail. None may be handled, and each must become a letter
    or be skipped."""
    report = Report(0)
    chance = stage.chance
    with Lot.of(stage) as lot:
        names, letters = keys(chance), f"{lot.topic}.dead"
        good = [record(chance, names) for _ in range(400 if stage.short else 1_500)]

        def bad(number: int) -> Record:
            return Record(chance.choice(BAD), None, number % PARTITIONS)

        for _ in range(chance.randrange(20)):
            good.insert(chance.randrange(len(good)), bad(chance.randrange(9)))
        head = [bad(number) for number in range(chance.randrange(2 * PARTITIONS))]
        tail = [bad(number) for number in range(chance.randrange(1, 2 * PARTITIONS))]
        places = lot.write([*head, *good, *tail])
        action = chance.choice(["dead-letter", "skip"])
        lot.words += ("--tune", f"on-split-failure={action}", "--max-failures", "100")
        lot.words += ("--tune", f"dead-letter-topic={letters}") if action == "dead-letter" else ()
        if chance.random() < 0.5:  # The first drain halts, and the resume goes past the message.
            words, lot.words = lot.words, lot.words[:4]
            report.ends(lot.starts(), EXIT_HALTED)
            lot.words = words
        lot.takes_its_course(stage, report, EXIT_DEAD_LETTERS)
        seen(traced(lot.trace), lot.expected).judge(report, lot.most_repeated(report))
        lot.check_group(report)
        report.remarks.append(f"{len(places)} bad messages, {action}")
        if action == "dead-letter":
            found = read_letters(stage.settings, letters)
            report.ensure(set(found) == set(places), f"letters {len(found)}, not {len(places)}")
            report.remarks.append(f"{found.total() - len(found)} letters twice")
            delete_letters(stage.settings, letters)
    return report
