"""What the handlers of a night were given, looked at as the polls of a consumer.

Source of the anomalies and of their names: the workload for systems like Kafka of Jepsen,
https://github.com/jepsen-io/jepsen, jepsen/src/jepsen/tests/kafka.clj. test_jepsen_kafka.py says
what each of them means for a drain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby

from conformance.nights import Commit, Event, Night
from core.messages import Place

Lane = tuple[int, Hashable]  # of one partition
Anomalies = dict[str, list[str]]


class _Polls:
    def __init__(self, night: Night) -> None:
        self.night = night
        self.found: Anomalies = {}
        self._lanes: dict[Lane, list[Place]] = defaultdict(list)
        for place in sorted(night.lanes):
            for lane in self._lanes_of(place):
                self._lanes[lane].append(place)
        self._index = {
            (lane, place): n for lane, all_ in self._lanes.items() for n, place in enumerate(all_)
        }
        self._ended = {each.place for each in night.marked("ended")}
        self._finished: set[Place] = set()  # by any life so far
        for _, events in groupby(night.events, lambda each: each.life):
            self._follow(list(events))
        self._look_back()

    def _lanes_of(self, place: Place) -> Iterator[Lane]:
        return ((place[0], lane) for lane in self.night.lanes[place])

    def _note(self, anomaly: str, what: str) -> None:
        self.found.setdefault(anomaly, []).append(what)

    def _follow(self, events: Iterable[Event | Commit]) -> None:
        """One life, from its first poll to its end."""
        nexts: dict[Lane, int] = {}  # the index in the lane that comes next
        calls: dict[Lane, int] = {}  # the call that the last one of a lane was in
        open_: dict[Place, int] = {}  # the calls that run
        done: set[Place] = set()
        for event in events:
            if isinstance(event, Commit):
                self._check_commit(event)
                continue
            place = event.place
            if event.mark == "begun":
                self._check_sent(event)
            if place not in self.night.lanes:
                continue
            if event.mark == "begun":
                self._check_alone(event, open_)
                open_[place] = event.call
                for lane in self._lanes_of(place):
                    inside = calls.get(lane) == event.call
                    self._check_poll(lane, place, nexts, "int-" if inside else "")
                    calls[lane] = event.call
                continue
            open_.pop(place, None)
            if event.mark == "failed":
                for lane in self._lanes_of(place):
                    nexts[lane] = min(nexts[lane], self._index[lane, place])
            else:
                if event.mark == "done" and place in done:
                    self._note("duplicate", f"{place} is done twice in life {event.life}")
                done.add(place)
                self._finished.add(place)

    def _check_alone(self, event: Event, open_: Mapping[Place, int]) -> None:
        """Nothing else of its lanes is in the handler, whatever the partition."""
        lanes = set(self.night.lanes[event.place])
        for other, call in open_.items():
            if call != event.call and lanes & set(self.night.lanes[other]):
                self._note("overlap", f"{event.place} comes while {other} is in the handler")

    def _check_sent(self, event: Event) -> None:
        """It was committed by its producer, and the handler is given what was sent."""
        place = event.place
        if place[:2] in self.night.undecided:
            self._note("precommitted-read", f"{place} is of a transaction that is still open")
        elif place[:2] in self.night.aborted or place not in self.night.lanes:
            self._note("G1a", f"{place} was aborted, or never sent")
        elif event.keys is not None and event.keys != self.night.sent.get(place, event.keys):
            what = f"{place} has {event.keys}, and was sent as {self.night.sent[place]}"
            self._note("inconsistent-offsets", what)

    def _check_poll(self, lane: Lane, place: Place, nexts: dict[Lane, int], inside: str) -> None:
        at, places = self._index[lane, place], self._lanes[lane]
        if lane not in nexts:
            before = [each for each in places[:at] if each not in self._finished]
        else:
            before = [each for each in places[nexts[lane] : at] if each not in self._ended]
            if at < nexts[lane]:
                what = f"{place} comes again, or late: {places[nexts[lane] - 1]} came before it"
                self._note(f"{inside}nonmonotonic-poll", what)
        if before:
            self._note(f"{inside}poll-skip", f"{place} comes, and {before[0]} was left out")
        nexts[lane] = at + 1

    def _check_commit(self, commit: Commit) -> None:
        for place in self.night.lanes:
            below = place[1] < commit.offsets.get(place[0], 0)
            if below and place not in self._finished:
                self._note("commit", f"{dict(commit.offsets)} is committed without {place}")

    def _look_back(self) -> None:
        """What nobody was ever given."""
        for lane, places in self._lanes.items():
            given = [n for n, place in enumerate(places) if place in self._finished]
            for place in places[: max(given, default=0)]:
                if place not in self._finished:
                    self._note("lost-write", f"{place} of {lane} never came, and later ones did")
        left = set(self.night.lanes) - self._finished
        if self.night.told and left:
            self._note("unseen", f"{sorted(left)} are left, and the drain said that it is done")


def polls(night: Night) -> Anomalies:
    """Anomalies of what the handlers were given, by Jepsen's names; none is good."""
    return _Polls(night).found
