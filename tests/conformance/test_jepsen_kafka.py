"""The anomalies of Jepsen's workload for Kafka, and what each of them means for a drain.

Source: https://github.com/jepsen-io/jepsen, jepsen/src/jepsen/tests/kafka.clj, read as a
specification. There, clients send to partitions and poll from them. Here, a sub-message is a value,
and a key is one lane of one partition: its log is what the topic has for it, in the order of
(offset, index). A life, which is one process of a drain, is a consumer. A call of the handler is a
transaction that polls what it is given, and a resume is a consumer that is assigned again.

``poll-skip``
    In one life, a lane goes on behind a sub-message that it has not had. A resume begins behind the
    first one that is unfinished, or leaves out a part of what it repeats.
``nonmonotonic-poll``
    In one life, a lane goes back, or has a sub-message again that did not fail.
``int-poll-skip``, ``int-nonmonotonic-poll``
    The same inside one call: of ``handle_batch``, or of what was folded.
``duplicate``
    There, one value is at two offsets. Here, one sub-message is done twice in one life.
``lost-write``
    A later one of the lane has finished, and this one was never done in any life.
``unseen``
    The drain reports that all is done, and this one never was.
``G1a``
    The handler is given what its producer aborted, or what nobody sent.
``precommitted-read``
    The handler is given what is of a transaction that is still open.
``inconsistent-offsets``
    The handler is given other sub-keys than those that were sent at this place.

Jepsen lets a consumer that is assigned again go back or skip, for the group decides what it gets.
A drain decides that itself, so here a resume may go back, but only to an earlier point of each
lane, with everything behind that point coming again in order; and it may never skip. Two anomalies
have no name there. ``commit`` is an offset that is committed with something unfinished below it.
``overlap`` is a sub-message that comes while another one of its lanes is in the handler: there, a
consumer never polls twice at once.

What does not apply: ``int-send-skip``, ``int-nonmonotonic-send`` and ``nonmonotonic-send`` are
about producers, and a drain writes nothing but dead letters, in no promised order. ``G0``, ``G1c``
and the other cycles are those of test_elle.py. ``realtime-lag`` is a measurement. There are no
rebalances inside a call, because a drain is no member of the group that it drains.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import pytest
from confluent_kafka import Message

from command.process import Command
from conformance.nights import Commit, Event, KilledNight, Night, Recorder, simulated
from conformance.polls import polls
from core.messages import Place
from simulation import process
from simulation.cluster import SimConsumer

FEW, MANY = (3, 4, 6, 11, 13, 18, 19, 22, 23), range(2000, 2060)  # seeds of the simulation
TOGETHER = 23  # one of those with calls that are given several of a lane
UNCOMMITTED = {"G1a", "precommitted-read"}  # what a drain that reads everything has to find
NIGHTS = 3  # on a real broker


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_simulated_nights_have_no_anomaly_of_kafka(seeds: Sequence[int]) -> None:
    nights = {seed: simulated(seed) for seed in seeds}
    assert sum(len({each.life for each in night.events}) > 1 for night in nights.values()) > 3
    for seed, night in nights.items():
        found = polls(night)
        assert found.keys() <= (set() if night.committed_only else UNCOMMITTED), f"{seed}: {found}"


# Sabotage: nights that went well, with one thing made wrong.

Lane = tuple[int, Hashable]
Wrong = Callable[[Night], bool]  # False where it can't go wrong so


def _finished_in_turn(night: Night) -> Iterator[tuple[int, Lane, list[Place]]]:
    """By life and lane, the places that were done there, with no more than one attempt each."""
    for life in dict.fromkeys(each.life for each in night.events):
        lanes: dict[Lane, list[Place]] = {}
        events = [each for each in night.events if isinstance(each, Event) and each.life == life]
        begun = [each.place for each in events if each.mark == "begun"]
        for event in events:
            if event.mark == "done" and begun.count(event.place) == 1:
                for lane in night.lanes[event.place]:
                    lanes.setdefault((event.place[0], lane), []).append(event.place)
        yield from ((life, lane, places) for lane, places in lanes.items())


def _pair(night: Night) -> tuple[Place, Place] | None:
    """Two that were done in turn, of the same lanes, and both begun only once in the night."""
    begun = [each.place for each in night.marked("begun")]
    for _, _, places in _finished_in_turn(night):
        for one, other in pairwise(places):
            once = begun.count(one) == begun.count(other) == 1
            if once and night.lanes[one] == night.lanes[other]:
                return one, other
    return None


def _exchange(night: Night, one: Place, other: Place) -> None:
    swapped = {one: other, other: one}
    night.events = [
        replace(each, place=swapped.get(each.place, each.place), keys=None)
        if isinstance(each, Event)
        else each
        for each in night.events
    ]


def _leave_out(night: Night, place: Place) -> None:
    night.events = [
        each for each in night.events if isinstance(each, Commit) or each.place != place
    ]


def goes_back(night: Night) -> bool:
    if pair := _pair(night):
        _exchange(night, *pair)
    return bool(pair)


def leaves_out(night: Night) -> bool:
    if pair := _pair(night):
        _leave_out(night, pair[0])
    return bool(pair)


def leaves_out_the_last(night: Night) -> bool:
    _leave_out(night, max(each.place for each in night.marked("done")))
    return True


def repeats(night: Night) -> bool:
    done = night.marked("done")[0]
    at = night.events.index(done)
    night.events[at + 1 : at + 1] = [replace(done, mark="begun"), done]
    return True


def overlaps(night: Night) -> bool:
    """The second of two comes before the first is done, though after it has begun."""
    if pair := _pair(night):
        begun = next(each for each in night.marked("begun") if each.place == pair[1])
        done = next(each for each in night.marked("done") if each.place == pair[0])
        night.events.remove(begun)
        night.events.insert(night.events.index(done), begun)
    return bool(pair)


def resumes_too_late(night: Night) -> bool:
    """What was in flight at a kill is left out by the resume, which goes on with its lane."""
    for life, _, places in _finished_in_turn(night):
        begun = {each.life for each in night.marked("begun") if each.place == places[0]}
        done = {each.life for each in night.marked("done") if each.place == places[0]}
        if len(places) > 1 and len(begun) > 1 and done == {life}:
            night.events = [
                each
                for each in night.events
                if isinstance(each, Commit) or (each.life, each.place) != (life, places[0])
            ]
            return True
    return False


def invents(night: Night) -> bool:
    night.events.insert(0, Event("begun", night.events[0].life, (0, 0, 99)))
    return True


def reads_the_aborted(night: Night) -> bool:
    night.aborted.add(night.marked("begun")[0].place[:2])
    return True


def reads_the_undecided(night: Night) -> bool:
    night.undecided.add(night.marked("begun")[0].place[:2])
    return True


def splits_otherwise(night: Night) -> bool:
    begun = night.marked("begun")[-1]
    night.events[night.events.index(begun)] = replace(begun, keys=("another",))
    return bool(night.sent)


def commits_too_far(night: Night) -> bool:
    done = night.marked("done")[-1]
    partition, offset, _ = done.place
    night.events.insert(night.events.index(done), Commit(done.life, {partition: offset + 1}))
    return True


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (goes_back, {"nonmonotonic-poll", "poll-skip"}),
        (leaves_out, {"poll-skip", "lost-write", "unseen"}),
        (leaves_out_the_last, {"unseen"}),
        (repeats, {"nonmonotonic-poll", "duplicate"}),
        (overlaps, {"overlap"}),
        (resumes_too_late, {"poll-skip"}),
        (invents, {"G1a"}),
        (reads_the_aborted, {"G1a"}),
        (reads_the_undecided, {"precommitted-read"}),
        (splits_otherwise, {"inconsistent-offsets"}),
        (commits_too_far, {"commit"}),
    ],
)
def test_what_is_wrong_with_a_night_is_found(wrong: Wrong, named: set[str]) -> None:
    found = set[str]()
    for seed in (3, 11, 13, 19, 22):
        night = deepcopy(simulated(seed))
        if wrong(night):
            found |= polls(night).keys()
    assert named <= found


def test_what_is_wrong_inside_a_call_is_found() -> None:
    night = deepcopy(simulated(TOGETHER))
    one, other = next(
        (one.place, other.place)
        for one, other in pairwise(night.marked("begun"))
        if one.call == other.call and set(night.lanes[one.place]) & set(night.lanes[other.place])
    )
    assert not polls(night)
    _exchange(night, one, other)
    assert "int-nonmonotonic-poll" in polls(night)

    night = deepcopy(simulated(TOGETHER))
    behind = next(
        each.place
        for each in night.marked("begun")
        if each.place > other and night.lanes[each.place] == night.lanes[other]
    )
    _exchange(night, other, behind)
    assert "int-poll-skip" in polls(night)


class Forgets(SimConsumer):
    """A client that keeps one record to itself, as if it were a hole."""

    def consume(self, most: int, timeout: float) -> list[Message]:
        found = super().consume(most, timeout)
        return [each for each in found if each.error() or (each.offset() or 0) % 7]


def test_a_client_that_skips_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SimConsumer", Forgets)
    found = set[str]()
    for seed in (3, 22):
        found |= polls(Recorder(seed).run()).keys()
    assert "poll-skip" in found


@pytest.mark.long
@pytest.mark.parametrize("number", range(NIGHTS))
def test_a_killed_drain_has_no_anomaly_of_kafka(command: Command, number: int) -> None:
    drain = KilledNight.of_chance(command)
    with drain.transactions():
        night = drain.run()
    assert not polls(night)


@pytest.mark.long
def test_a_drain_that_reads_uncommitted_is_found(command: Command) -> None:
    drain = KilledNight.of_chance(command)
    with drain.transactions():
        night = drain.run("-X", "isolation.level=read_uncommitted", kills=1)
    assert polls(night).keys() == UNCOMMITTED
