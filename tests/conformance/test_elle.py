"""Elle's anomalies, in the lists that a drain leaves behind, after nights of kills.

Source: Elle, the checker of transactions of Jepsen, https://github.com/jepsen-io/elle, its paper
https://arxiv.org/abs/2003.10554, and its command elle-cli, https://github.com/ligurio/elle-cli. If
``DRAINER_ELLE_CLI`` names its jar, or one lies as ``elle-cli*.jar`` in the folder ``tests`` of the
user's cache of drainer, Elle judges each history here, and has to agree. Otherwise a small checker
of our own judges alone, which list_append.py describes.

The handler appends each sub-message to a list for each of its sub-keys. It reads the lists and
writes them with one more, without any lock, so the lists are right only while drainer keeps what it
promises. Two histories are made of a night:

- The calls, as they really overlapped. Each is a transaction that reads the lists of its lanes and
  appends to them; at the end, all lists are read. A call that was in flight at a kill ended with
  ``info`` if its appends are in the lists, under the number of its process; if they are not, it has
  done nothing, and is left out. Drainer may repeat a call after a kill. The sink finds the identity
  of the sub-message in the list then, and appends nothing, so the repeat is a transaction that only
  reads.
- The backlog, as if it had been drained by one who does one message at a time. Each message is a
  transaction with the appends of all its sub-messages, one after the other by offset, and at the
  end all lists are read. That is what docs/explanation/correctness.md promises: the state in the
  end is that of the serial drain. Kafka promises no order between partitions, so the lists are cut
  by partition here.

Both must be strictly serializable. That nothing is repeated but by a rewind, in order, is looked
for in the calls themselves, because a sink which appends each identity once hides it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from command.process import Command
from conformance.list_append import History, Step, anomalies, elle_cli, elle_says
from conformance.nights import (
    Commit,
    Event,
    KilledNight,
    Lists,
    Night,
    Reads,
    Sink,
    replayed,
    simulated,
)
from conformance.polls import polls
from core.messages import Place

FEW, MANY = (3, 11, 13, 18, 19, 22), range(1000, 1060)  # seeds of the simulation
NIGHTS, PER_TEST = 20, 5  # on a real broker


def calls(night: Night) -> History:
    """The calls of a night, as they overlapped."""
    return _Calls(night).history


class _Calls:
    def __init__(self, night: Night) -> None:
        self.night = night
        self.history = History()
        self._number = {place: number for number, place in enumerate(sorted(night.lanes))}
        self._open: dict[Place, tuple[int, str, list[Step]]] = {}
        ends, life = dict(_ends(night)), 0
        for number, event in enumerate(night.events):
            if event.life != life:
                self._end_all()
            life = event.life
            if isinstance(event, Event) and event.mark == "begun" and number in ends:
                steps = list(self._steps(event, *ends[number]))
                process = self.history.invoke(*steps)
                self._open[event.place] = process, ends[number][0], steps
            elif isinstance(event, Event) and event.place in self._open:
                self._end(event.place)
        self._end_all()
        lanes = sorted({str(lane) for each in night.lanes.values() for lane in each})
        lists = {str(lane): found for lane, found in night.lists.items()}
        self.history.add(*(("r", lane, self._numbers(lists.get(lane, ()))) for lane in lanes))

    def _end_all(self) -> None:
        for place in list(self._open):
            self._end(place)

    def _end(self, place: Place) -> None:
        process, kind, steps = self._open.pop(place)
        self.history.end(process, kind, *steps)

    def _steps(self, begun: Event, kind: str, appends: bool) -> Iterator[Step]:
        for lane in self.night.lanes[begun.place]:
            if lane in begun.read:
                yield "r", str(lane), self._numbers(begun.read[lane])
            if appends:
                yield "append", str(lane), self._number[begun.place]

    def _numbers(self, places: Iterable[Place]) -> list[int]:
        return [self._number.setdefault(place, len(self._number)) for place in places]


def _ends(night: Night) -> Iterator[tuple[int, tuple[str, bool]]]:
    """How each call ended, by the number of its event, and whether it was the one that appended."""
    appended: set[Place] = set()
    begun: dict[Place, tuple[int, int]] = {}

    def end_killed(life: int) -> Iterator[tuple[int, tuple[str, bool]]]:
        for place, (number, owner) in list(begun.items()):
            if owner != life:
                del begun[place]
                if night.wrote.get(place) == owner and place not in appended:
                    appended.add(place)
                    yield number, ("info", True)

    for number, event in enumerate(night.events):
        yield from end_killed(event.life)
        if isinstance(event, Commit) or not night.lanes.get(event.place):
            continue
        if event.mark == "begun":
            begun[event.place] = number, event.life
        elif event.mark == "done" and event.place in begun:
            yield begun.pop(event.place)[0], ("ok", event.place not in appended)
            appended.add(event.place)
        else:
            begun.pop(event.place, None)
    yield from end_killed(-1)


def serial(night: Night) -> History:
    """The backlog of a night, drained message by message, and the lists that there are."""
    history = History()
    number = {place: at for at, place in enumerate(sorted(night.lanes))}
    messages: dict[tuple[int, int], list[Step]] = defaultdict(list)
    lists: dict[str, list[int]] = {}
    for place in sorted(night.lanes):
        for lane in night.lanes[place]:
            lists.setdefault(f"{place[0]}/{lane}", [])
            if place in night.owed:
                step = "append", f"{place[0]}/{lane}", number[place]
                messages[place[:2]].append(step)
    for steps in messages.values():
        history.add(*steps)
    for lane, places in night.lists.items():
        for place in places:
            lists[f"{place[0]}/{lane}"].append(number[place])
    history.add(*(("r", key, found) for key, found in lists.items()))
    return history


def nights_of(seeds: Iterable[int], sink: type[Sink] = Sink) -> dict[int, Night]:
    """Nights in virtual time that end well, in which each call is of one sub-message in lanes."""
    nights = {seed: simulated(seed) for seed in seeds}
    return {
        seed: replayed(night, sink())
        for seed, night in nights.items()
        if night.told and night.committed_only and not night.together and any(night.lanes.values())
    }


def one_by_one(*transactions: Sequence[Step] | str) -> History:
    """A history without overlaps; a word says how the transaction before it ended, if not well."""
    history, kinds = History(), [*transactions[1:], ()]
    for steps, next_ in zip(transactions, kinds, strict=True):
        if not isinstance(steps, str):
            process = history.invoke(*steps)
            history.end(process, next_ if isinstance(next_, str) else "ok", *steps)
    return history


def a(element: int, key: str = "x") -> Step:
    return "append", key, element


def r(*elements: int, key: str = "x") -> Step:
    return "r", key, list(elements)


JUDGED = {
    "good": (one_by_one([a(1)], [r(1)], [a(2), r(1, 2)], [a(3)], "info", [r(1, 2, 3)]), set()),
    "not there, and nobody knows": (one_by_one([a(1)], "info", [r()]), set()),
    "lost": (one_by_one([a(1)], [a(2)], [r(2)]), {"lost"}),
    "duplicate": (one_by_one([a(1)], [r(1, 1)]), {"duplicate-elements"}),
    "reordered": (one_by_one([a(1)], [a(2)], [r(2, 1)]), {"G0-realtime"}),
    "contradictory": (
        one_by_one([a(1)], "info", [a(2)], "info", [r(1)], [r(2, 1)]),
        {"incompatible-order"},
    ),
    "aborted": (one_by_one([a(1)], "fail", [r(1)]), {"G1a"}),
    "half": (one_by_one([a(1), a(2)], [r(1)]), {"G1b"}),
    "its own not there": (one_by_one([a(1), r()]), {"internal"}),
    "stale": (one_by_one([a(1)], [a(2)], [r(1)], [r(1, 2)]), {"G2-realtime"}),
    "crossed": (
        one_by_one([a(1), a(1, "y")], [a(2), a(2, "y")], [r(1, 2), r(2, 1, key="y")]),
        {"G0"},
    ),
    "appended by nobody": (one_by_one([r(1)]), {"garbage"}),
}


@pytest.mark.parametrize("name", JUDGED)
def test_our_own_checker_knows_the_anomalies(name: str) -> None:
    history, expected = JUDGED[name]
    found = anomalies(history)
    assert expected <= found.keys()
    assert bool(expected) == bool(found)


@pytest.mark.long
def test_elle_agrees_with_our_own_checker(tmp_path: Path) -> None:
    if (jar := elle_cli()) is None:
        pytest.skip("there is no jar of elle-cli")
    # Elle refuses to judge a history with an element that nobody appended.
    paths = {name: tmp_path / f"{name}.json" for name in JUDGED if name != "appended by nobody"}
    for name, path in paths.items():
        JUDGED[name][0].write(path)
    said = elle_says(jar, list(paths.values()))
    assert {name: not said[path] for name, path in paths.items()} == {
        name: bool(JUDGED[name][1]) for name in paths
    }


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_simulated_nights_have_no_anomaly_and_repeat_only_by_rewinds(
    seeds: Sequence[int],
) -> None:
    nights = nights_of(seeds)
    assert len(nights) >= len(seeds) / 3
    assert sum(len({each.life for each in night.events}) > 1 for night in nights.values()) > 2
    for seed, night in nights.items():
        found = {**anomalies(calls(night)), **anomalies(serial(night)), **polls(night)}
        assert not found, f"seed {seed}: {found}"


class Drops(Sink):
    """Says that it appended, and did not."""

    def write(self, place: Place, read: Reads) -> None:
        if place[1] % 4:
            super().write(place, read)


class Swaps(Sink):
    """Puts some before what was there last."""

    def write(self, place: Place, read: Reads) -> None:
        super().write(place, read)
        for lane in read:
            found = self.lists[lane]
            if place[1] % 4 == 0 and found[-1] == place:
                found[-2:] = reversed(found[-2:])


class Repeats(Sink):
    """Looks for no identity, and appends some twice."""

    def write(self, place: Place, read: Reads) -> None:
        for lane, found in read.items():
            self.lists[lane] = [*found, *[place] * (1 if place[1] % 4 else 2)]


class Late(Sink):
    """Reads a copy that lags behind, as of a replica."""

    def __init__(self) -> None:
        super().__init__()
        self._replica: Lists = {}

    def read(self, lanes: Iterable[Hashable]) -> Reads:
        found = {lane: list(self._replica.get(lane, ())) for lane in lanes}
        self._replica = {lane: list(each) for lane, each in self.lists.items()}
        return found


@pytest.mark.parametrize(
    ("sink", "named"),
    [
        (Drops, "lost"),
        (Swaps, "incompatible-order"),
        (Repeats, "duplicate-elements"),
        (Late, "incompatible-order"),
    ],
)
def test_a_sink_that_is_wrong_is_found(sink: type[Sink], named: str) -> None:
    names = set[str]()
    for night in nights_of(FEW, sink).values():
        names |= anomalies(calls(night)).keys() | anomalies(serial(night)).keys()
    assert named in names


def test_an_order_that_is_not_the_topics_is_found() -> None:
    night = next(night for night in nights_of(FEW).values() if _long(night))
    night.lists[_long(night)].reverse()
    assert {"G0", "G0-realtime"} & anomalies(serial(night)).keys()


def _long(night: Night) -> Hashable:
    """A lane with some of one partition."""
    lanes = (lane for lane, found in night.lists.items() if len({p[0] for p in found}) == 1)
    return next((lane for lane in lanes if len(night.lists[lane]) > 2), None)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, NIGHTS, PER_TEST))
def test_nights_of_kills_have_no_anomaly_and_repeat_only_by_rewinds(
    command: Command, first: int
) -> None:
    histories = {}
    for number in range(first, first + PER_TEST):
        night = KilledNight.of_chance(command).run()
        assert len({each.life for each in night.events}) > 1, "no kill was in time"
        assert not polls(night)
        for name, history in (("calls", calls(night)), ("serial", serial(night))):
            assert not anomalies(history), f"night {number}"
            path = history.write(command.home / f"{name}-{number}.json")
            histories[path] = True
    if (jar := elle_cli()) is not None:
        assert elle_says(jar, list(histories)) == histories


@pytest.mark.long
@pytest.mark.parametrize(
    ("sabotage", "named"),
    [("drop", "lost"), ("swap", "incompatible-order"), ("repeat", "duplicate-elements")],
)
def test_a_sink_that_is_wrong_on_a_night_of_kills_is_found(
    command: Command, sabotage: str, named: str
) -> None:
    night = KilledNight.of_chance(command, sabotage=sabotage).run(kills=1)
    assert named in found_in(night, command.home)
    assert not polls(night), "the calls themselves were right"


@pytest.mark.long
def test_a_drain_that_keeps_no_order_is_found(command: Command) -> None:
    night = KilledNight.of_chance(command).run(kills=1, order="none")
    assert "incompatible-order" in found_in(night, command.home)
    assert "overlap" in polls(night)


def found_in(night: Night, folder: Path) -> set[str]:
    """Anomalies of both histories; Elle has to agree on which of them has some."""
    histories = {folder / "calls.json": calls(night), folder / "serial.json": serial(night)}
    found = {path: anomalies(history) for path, history in histories.items()}
    if (jar := elle_cli()) is not None:
        for path, history in histories.items():
            history.write(path)
        assert elle_says(jar, list(found)) == {path: not each for path, each in found.items()}
    return {name for each in found.values() for name in each}
