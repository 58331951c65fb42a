"""What the limit has counted gets from the tasks of a wave to those of the next, whole or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.errors import StateLost
from drainer.spark.attempt import Attempt
from drainer.spark.counted import Counted
from drainer.spark.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.open(str(tmp_path), "d")


def test_what_was_put_is_there_by_its_name_until_it_is_forgotten(state: State) -> None:
    counted = Counted(state)
    one = counted.put(Attempt(3, 1, "0/2", 7), [{"'a'": 2}])
    all_ = counted.put(Attempt(3, 2, "all", 9), [{"'a'": 3, "'ü'": 1}, {}])

    assert counted.get([*one, *all_, ""]) == [{"'a'": 2}, {"'a'": 3, "'ü'": 1}, {}, {}]

    counted.forget(one)
    with pytest.raises(StateLost, match="is gone or damaged"):
        counted.get(one)
    assert len(counted.get(all_)) == 2


def test_two_attempts_do_not_write_over_each_other(state: State) -> None:
    counted = Counted(state)
    names = [counted.put(Attempt(3, 1, "0/2", n), [{"'a'": n}])[0] for n in (1, 2)]

    assert counted.get(names) == [{"'a'": 1}, {"'a'": 2}]


def test_nobody_takes_it_for_an_attempt_and_it_goes_with_the_state(
    state: State, tmp_path: Path
) -> None:
    Counted(state).put(Attempt(3, 1, "0/2", 7), [{"'a'": 2}])
    assert state.attempts() == []

    state.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_spoilt_is_not_counted_from(state: State, tmp_path: Path) -> None:
    counted = Counted(state)
    [name] = counted.put(Attempt(3, 1, "0/2", 7), [{"'a'": 2}])
    path = tmp_path / "d" / name
    path.write_bytes(path.read_bytes().replace(b"2}", b"1}"))

    with pytest.raises(StateLost, match=name):
        counted.get([name])
