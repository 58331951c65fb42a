"""The laws that need ``handle`` to be called: sub-keys commute, and lanes may be rewound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drainer.certify.schedule import SampleWork, SubIndex, first_free, last_free
from drainer.certify.subject import AT_ONCE
from drainer.certify.trial import CounterExample, Draw, HandlerTrial, Parts, Search, minimized
from drainer.errors import Refused, SplitFailed
from drainer.model.finding import Finding, Level

_CLAIM = "Name in `keys` all that an operation touches, or make it a Barrier."
_REPEAT = (
    "Write values that don't depend on the stored ones, never go back, or store sub.id with the"
    " effect."
)


def baseline(trial: HandlerTrial) -> list[Finding]:
    """Whether there is anything to compare with; the other laws only count if nothing is bad."""
    serial = trial.run(trial.work.serial)
    if serial.raised is not None:
        return [
            Finding(
                "handle",
                Level.BAD,
                f"in order and one at a time, {serial.raised}",
                "Fix handle: a drain halts there. If it needs earlier messages, prepare their"
                " effects in open().",
            )
        ]
    count = f"{len(trial.work.specs):,} sub-message{'' if len(trial.work.specs) == 1 else 's'}"
    handles = Finding("handle", Level.OK, f"handle takes {count}")
    repeated = trial.run(trial.work.serial)
    if not repeated.same(serial):
        first, second = serial.against(repeated)
        return [
            handles,
            Finding(
                "state",
                Level.BAD,
                f"the same sub-messages in the same order left {first}, then {second}",
                "Start with the same state in each open(). Leave times and random ids out of the"
                " state function.",
            ),
        ]
    if trial.run().same(serial):
        return [
            handles,
            Finding(
                "state",
                Level.WARN,
                "the state function sees no change by handle: the next checks prove little",
                "Return all that handle writes.",
            ),
        ]
    return [handles, Finding("state", Level.OK, "the same order ends in the same state")]


def commutes(trial: HandlerTrial) -> Finding:
    """Whether sub-messages of different sub-keys may change places."""
    search = Search(trial, lambda work: (work.steps(last_free),), _one_by_one)
    passed = "different sub-keys commute: {:,} schedules end in the serial state"
    return _searched("commutes", search, _swap_in_words, _CLAIM, passed)


def overlaps(trial: HandlerTrial) -> Finding:
    """Whether sub-messages of different sub-keys may be in the handler at the same time."""
    if not trial.is_async:
        return Finding(
            "overlaps",
            Level.UNCHECKED,
            "not checked: a plain handle runs on threads, which drainer can't schedule",
            "Guard what different sub-keys share in the process with a lock.",
        )

    def all_at_once(work: SampleWork) -> Parts:
        return (work.steps(lambda free: range(min(free, AT_ONCE))),)

    search = Search(trial, all_at_once, _some_at_once)
    hint = "Don't await between reading and writing a shared value, or name it in `keys`."
    passed = "different sub-keys may be handled at the same time: {:,} schedules"
    return _searched("overlaps", search, _overlap_in_words, hint, passed)


def idempotent(trial: HandlerTrial) -> Finding:
    """Whether lanes may go on from an earlier point under the same ids, as after a kill; a retry
    is such a rewind by one."""
    search = Search(trial, lambda work: (work.serial, work.serial), _from_somewhere)
    found = search.find(trial.work) if trial.work.specs else None
    if found is None:
        text = f"repeating work after a kill gives the same state: {search.tried:,} schedules"
        return Finding("idempotent", Level.OK, text)
    before, after = ([step[0] for step in part] for part in found.parts)
    repeated = [place for place in after if place in set(before)]
    there, here = found.ended.against(found.serial)
    return Finding(
        "idempotent",
        Level.BAD,
        f"killed after {found.work.words([p for p in before if p in set(repeated)])}, and resumed"
        f" from {found.work.words(repeated[:1])} on, it leaves {there}; without the kill, {here}"
        f"{_beside(len(found.work.specs) - len(repeated))}",
        _REPEAT,
    )


def travels(trial: HandlerTrial) -> Finding:
    """Whether handling ends in the same state with what Spark's tasks are sent."""
    try:
        ended = trial.run(trial.work.serial, is_shipped=True)
    except (SplitFailed, Refused):
        text = "not checked: payloads can't travel to Spark tasks"
        return Finding("travels", Level.UNCHECKED, text)
    serial = trial.run(trial.work.serial)
    if ended.same(serial):
        return Finding("travels", Level.OK, "handle needs only what Spark tasks receive")
    there, here = ended.against(serial)
    return Finding(
        "travels",
        Level.WARN,
        f"on Spark, where sub-messages have no message.value, {there}; in one process, {here}",
        "Put what handle needs into the payload, or set whole_messages = True. Change no payload.",
    )


def together(trial: HandlerTrial) -> Finding | None:
    """Whether folding and batches end as one sub-message after the other does; None for a handler
    that has neither."""

    def tried(part: SampleWork) -> CounterExample | None:
        serial, ended = trial.run(part.serial), trial.run_together(part.chosen)
        if ended is None or serial.raised is not None or ended.same(serial):
            return None
        return CounterExample(part, (part.serial,), serial, ended)

    if trial.run_together(()) is None:
        return None
    for part in trial.work.whole_partitions():
        found = tried(part)
        if found is not None:
            found = minimized(found, tried)
            there, here = found.ended.against(found.serial)
            return Finding(
                "together",
                Level.BAD,
                f"{found.work.words(list(found.work.specs))} leave {there} as a drain folds and"
                f" batches them; one by one, {here}",
                "Make coalesce(earlier, later) do what both would in this order, and change"
                " neither. Make handle_batch do what handling each would.",
            )
    text = "folded and in batches, they end in the same state as one by one"
    return Finding("together", Level.OK, text)


def _searched(
    check: str, search: Search, in_words: Callable[[CounterExample], str], hint: str, passed: str
) -> Finding:
    """Result of trying other orders: a counter-example with the hint, or ``passed`` with how many
    schedules were tried."""
    parts = [part for part in search.trial.work.whole_partitions() if part.has_choice]
    if not parts:
        return Finding(
            check,
            Level.UNCHECKED,
            "not checked: all these sub-messages share one sub-key",
            "Take more messages, or split finer: a drain gains nothing from one lane.",
        )
    found = next(filter(None, map(search.find, parts)), None)
    if found is not None:
        return Finding(check, Level.BAD, in_words(found), hint)
    return Finding(check, Level.OK, passed.format(search.tried))


def _swap_in_words(found: CounterExample) -> str:
    order, serial = _places(found), list(found.work.specs)
    # What stands alike at both ends is not what the order changes.
    while len(order) > 2 and order[0] == serial[0]:
        order, serial = order[1:], serial[1:]
    while len(order) > 2 and order[-1] == serial[-1]:
        order, serial = order[:-1], serial[:-1]
    there, here = found.ended.against(found.serial)
    others = _beside(len(found.work.specs) - len(order))
    if len(order) == 2:
        one, other = found.work.words(serial[:1]), found.work.words(serial[1:])
        return f"{one} and then {other} leaves {here}; the other way round, {there}{others}"
    words = found.work.words
    return f"{words(serial)} in this order leave {here}; as {words(order)}, {there}{others}"


def _overlap_in_words(found: CounterExample) -> str:
    together = next((step for step in found.parts[0] if len(step) > 1), tuple(_places(found)))
    there, here = found.ended.against(found.serial)
    return (
        f"{found.work.words(together)} at the same time leave {there}; one after the other, {here}"
        f"{_beside(len(found.work.specs) - len(together))}"
    )


def _places(found: CounterExample) -> list[SubIndex]:
    return [place for step in found.parts[0] for place in step]


def _beside(others: int) -> str:
    return f" (with {others} more handled around them)" if others > 0 else ""


def _one_by_one(work: SampleWork, draw: Draw) -> Parts:
    return (work.steps(lambda free: (draw(0, free - 1),)),)


def _some_at_once(work: SampleWork, draw: Draw) -> Parts:
    def choose(free: int) -> Sequence[int]:
        count = draw(1, min(free, AT_ONCE))
        first = draw(0, free - count)
        return range(first, first + count)

    return (work.steps(choose),)


def _from_somewhere(work: SampleWork, draw: Draw) -> Parts:
    steps = work.steps(first_free)
    finished = draw(0, len(steps) - 1)
    begun = finished + draw(1, len(steps) - finished)
    return steps[:begun], steps[finished:]
