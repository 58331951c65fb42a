"""The ledger: accounts, memory, and what a resume refuses; test_laws.py has the watermark."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from drainer.core.ledger import PURGE_MIN, Ledger
from drainer.errors import SplitFailed
from drainer.message import Message
from drainer.model.progress import Outcome

from .messages import entries_in, message_at, written_and_read


def deliver(ledger: Ledger, offset: int, *keys: Hashable, size: int = 0) -> Message:
    message = message_at(offset)
    ledger.deliver(message, keys, size)
    return message


def resume(ledger: Ledger) -> Ledger:
    """A ledger that goes on from this one's progress, through the text of a plan."""
    return Ledger(0, ledger.end, written_and_read(ledger.progress()))


# --- resuming ---


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(("a",), id="fewer"),
        pytest.param(("b", "a"), id="another-order"),
        pytest.param(("a", "x"), id="another-key"),
    ],
)
def test_a_split_that_is_not_deterministic_is_refused_and_named(keys: tuple[str, ...]) -> None:
    ledger = Ledger(0, 9)
    ledger.finish(deliver(ledger, 4, "a", "b"), 0)
    resumed = resume(ledger)
    before = resumed.progress()

    with pytest.raises(SplitFailed, match="orders/0/4") as error:
        deliver(resumed, 4, *keys)

    assert error.value.hint
    assert resumed.progress() == before, "nothing was taken in"
    assert resumed.first_pending is None
    assert resumed.wants(4)


def test_a_part_of_a_message_that_is_gone_is_forgotten_once_it_is_passed() -> None:
    # Compaction or retention removed it between two drains. Kept, its part would stand below the
    # watermark, and the plan that holds it would be refused as contradicting itself.
    ledger = Ledger(0, 9)
    ledger.finish(deliver(ledger, 4, "a", "b"), 0)
    resumed = resume(ledger)

    resumed.finish(deliver(resumed, 5, "a"), 0)
    progress = resumed.progress()

    assert progress.watermark == 6
    assert progress.partial == {}


# --- memory ---


@pytest.mark.parametrize(
    ("count", "size", "most"), [(5_000, 0, 2 * (1 + PURGE_MIN)), (300, 1024 * 1024, 4)]
)
def test_what_finished_behind_a_stuck_message_is_let_go_by_number_and_by_bytes(
    count: int, size: int, most: int
) -> None:
    ledger = Ledger(0, 3 * (count + 1))
    kept = 0
    for first in range(0, ledger.end, count + 1):  # what is accounted for survives each round
        stuck = deliver(ledger, first, "stuck", size=10)
        end = first + count + 1
        for offset in range(first + 1, end):
            ledger.finish(deliver(ledger, offset, "a", size=size), 0)
            assert ledger.changes() is not None
            kept = max(kept, entries_in(ledger))
        assert ledger.pending_bytes == 10
        assert ledger.progress().finished == ((first + 1, end),)
        ledger.finish(stuck, 0)
        assert ledger.watermark == end

    assert kept <= most
    assert ledger.complete


# --- what stays pending for a run ---


def test_the_sub_keys_of_a_message_at_rest_are_still_counted() -> None:
    ledger = Ledger(0, 2)
    message = deliver(ledger, 0, "a" * 5_000, "b" * 5_000, size=50_000)
    ledger.leave_pending(message)
    ledger.leave_pending(message)
    assert 10_000 < ledger.pending_bytes < 15_000


def test_what_is_at_rest_keeps_no_partition_from_being_read() -> None:
    """Nothing of it goes in this run: whoever waited for that would wait for ever."""
    ledger = Ledger(0, 2)
    message = deliver(ledger, 0, "a", "b", size=50_000)
    ledger.leave_pending(message)
    assert ledger.moving_bytes == 50_000
    ledger.finish(message, 1)
    assert (ledger.moving_bytes, ledger.pending_bytes > 0) == (0, True)


@pytest.mark.parametrize("by_journal", [True, False])
def test_how_a_part_ended_is_known_after_a_resume(by_journal: bool) -> None:
    """A message of which a part died before a stop is dead, whoever does the rest of it."""
    first = Ledger(0, 3)
    began = first.progress()
    message = deliver(first, 1, *"abc")
    first.finish(message, 0, Outcome.DEAD)
    first.finish(message, 1, Outcome.SKIPPED)
    changes = first.changes()
    assert changes is not None
    known = began.merge(changes) if by_journal else first.progress()
    second = Ledger(0, 3, written_and_read(known))
    second.finish(deliver(second, 1, *"abc"), 2)
    messages, subs = second.counts()
    assert (messages.done, messages.dead, messages.skipped) == (0, 1, 0)
    assert (subs.done, subs.dead, subs.skipped) == (1, 1, 1)
    assert not any(second.progress().outcomes.values())
