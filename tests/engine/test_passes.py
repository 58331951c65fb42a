"""A drain in passes: what stops one, what is left over, and what the next one knows of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drainer.engine.control import Pause, Stop
from drainer.errors import EXIT_CLASS_WAITS, EXIT_DONE, EXIT_HALTED, EXIT_INTERRUPTED, Refused
from drainer.message import SubMessage
from drainer.model.account import EventKind
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from engine.made_up_kafka import OnTheLoop, Spec, VirtualDrains, log_of

ALONE = "pending       of the last class alone"
FIRST = "key =~ 'c.*'"
IN_TURN = {0: log_of(*([f"c{n}"] if n % 2 else [f"x{n}"] for n in range(40)))}
SMALL = LocalSettings(concurrency=8, plan_interval_s=0.02, buffer_bytes=1_000_000)
WIDE = [f"w{n}-{'y' * 30}" for n in range(200)]  # sub-keys, of which memory keeps each
# Forty messages have one that waits behind "hot"; these fill the buffer before the rest is read.
CROWD_ROW: list[Spec] = [["hot", "chot"], *WIDE]
CLASS: list[Spec] = ["c1"]
CROWD: list[list[Spec]] = [["hot"], *([CROWD_ROW] * 40), *([CLASS] * 30)]
CROWDED = {0: log_of(*CROWD)}


class Happening(OnTheLoop):
    """Something happens as it is closed, or opened, for the first or the second time."""

    def __init__(self, at: str, happens: Callable[[], object]) -> None:
        super().__init__()
        self.at = at
        self.happens = happens
        self.calls = {"open": 0, "close": 0}

    def open(self, context: object) -> None:
        super().open(context)
        self._happen("open")

    def close(self) -> None:
        super().close()
        self._happen("close")

    def _happen(self, what: str) -> None:
        self.calls[what] += 1
        if self.at == f"{what} {self.calls[what]}":
            self.happens()


def test_the_plan_has_the_end_of_each_pass_and_the_status_of_all(virtual: VirtualDrains) -> None:
    rehearsal, handler = virtual.rehearsal(IN_TURN), Happening("never", lambda: None)
    summary = rehearsal.drain(handler, FIRST)
    assert (summary.status, summary.exit_code) == ("done", EXIT_DONE)
    assert handler.calls == {"open": 2, "close": 2}
    assert [event.what for event in summary.history] == [EventKind.WENT_ON, EventKind.ENDED]
    elapsed = [status.timing.elapsed_s for status in rehearsal.statuses]
    assert elapsed == sorted(elapsed)
    first = [status for status in rehearsal.statuses if status.progress.turn]
    assert all(status.progress.messages.finished == 0 for status in first), "none is by then"
    assert summary.last.progress.classes[0].sub_messages.done == 20


def test_what_a_rule_could_not_decide_is_counted_over_all_passes(virtual: VirtualDrains) -> None:
    skips = FailureSettings(skip=("payload.customer == 4",))  # No payload here has a customer.
    rehearsal = virtual.rehearsal(IN_TURN, failures=skips)
    summary = rehearsal.drain(OnTheLoop(), FIRST)
    assert summary.last.rules.undecided == {skips.skip[0]: 40}
    assert summary.last.rules.why.keys() == {skips.skip[0]}
    counts = [sum(each.rules.undecided.values()) for each in rehearsal.statuses]
    assert counts == sorted(counts), "a metric that only rises"


@pytest.mark.parametrize("by", ["signal", "stop"])
def test_a_stop_while_a_pass_comes_to_its_end_is_one(by: str, virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(IN_TURN)

    def stop() -> None:
        if by == "signal":
            virtual.signal("SIGINT")
        else:
            rehearsal.control.request(Stop(), "ana@db1")
        virtual.sleep(0.2)

    handler = Happening("close 1", stop)
    summary = rehearsal.drain(handler, FIRST)
    assert (summary.status, summary.exit_code) == ("interrupted", EXIT_INTERRUPTED)
    assert len(handler.account.finished) == 20
    assert summary.resume is not None
    rehearsal.resumes_exactly(handler)


def test_what_can_not_be_done_between_two_passes_is_to_be_requested_again(
    virtual: VirtualDrains,
) -> None:
    rehearsal, requests = virtual.rehearsal(IN_TURN), []

    def pause() -> None:
        requests.append(rehearsal.control.request(Pause(), "ana@db1"))
        virtual.sleep(0.2)

    rehearsal.drain(Happening("close 1", pause), FIRST)
    with pytest.raises(Refused) as caught:
        requests[0].result(0)
    assert "in a moment" in str(caught.value.hint)


@pytest.mark.parametrize("error", [ValueError("no database"), KeyboardInterrupt()])
def test_what_stops_a_later_pass_as_it_begins_reports_those_before(
    error: BaseException, virtual: VirtualDrains
) -> None:
    def fail() -> None:
        raise error

    handler = Happening("open 2", fail)
    rehearsal = virtual.rehearsal(IN_TURN)
    summary = rehearsal.drain(handler, FIRST)
    assert (summary.status, summary.exit_code) == ("interrupted", EXIT_INTERRUPTED)
    assert summary.sub_messages.done == 20
    assert "nothing was handled" not in str(summary.hint)
    rehearsal.resumes_exactly(handler)


def test_only_a_class_of_which_some_has_to_wait_is_not_done(virtual: VirtualDrains) -> None:
    """A customer would be informed wrongly otherwise."""
    rehearsal = virtual.rehearsal({0: log_of(["x", "c1"], [["x", "c2"]], ["c2"])})
    handler = OnTheLoop()
    summary = rehearsal.drain(handler, "'c1' in keys or 'c2' in keys", only=True)
    assert (summary.status, summary.exit_code) == ("class-waits", EXIT_CLASS_WAITS)
    assert [each.deferred for each in summary.last.progress.classes] == [2]
    assert "2 selected sub-messages of 'c1' in keys" in str(summary.error)
    assert summary.sub_messages.pending == 2
    assert ALONE not in str(summary)
    assert summary.resume is not None
    rehearsal.resumes_exactly(handler)


def test_only_classes_of_which_several_have_to_wait_say_whose_are_pending(
    virtual: VirtualDrains,
) -> None:
    rehearsal = virtual.rehearsal({0: log_of(["x", "c1"], [["x", "c1"]], [["x", "c2"]], ["c2"])})
    handler = OnTheLoop()
    summary = rehearsal.drain(handler, "'c1' in keys", "'c2' in keys", only=True)
    assert [each.deferred for each in summary.last.progress.classes] == [1, 2]
    assert summary.sub_messages.pending == 2
    assert ALONE in str(summary)
    rehearsal.resumes_exactly(handler)


def test_only_a_class_behind_a_barrier_reports_how_much_waits_and_for_what(
    virtual: VirtualDrains,
) -> None:
    rehearsal = virtual.rehearsal(
        {0: log_of(["x"], [None], ["c1"], ["y"], ["c1"]), 1: log_of(["c1"])}
    )
    handler = OnTheLoop()
    summary = rehearsal.drain(handler, "key == 'c1'", only=True)
    assert summary.exit_code == EXIT_CLASS_WAITS
    assert "all of key == 'c1' in 3 offsets of partition 0 from 2 on" in str(summary.error)
    assert "because a barrier is before them" in str(summary.error)
    assert ": 0 sub-messages" not in str(summary.error)
    rehearsal.resumes_exactly(handler)


def test_only_a_class_is_done_when_all_of_it_is(virtual: VirtualDrains) -> None:
    rehearsal, handler = virtual.rehearsal(IN_TURN), OnTheLoop()
    summary = rehearsal.drain(handler, FIRST, only=True)
    assert (summary.status, summary.exit_code) == ("class-done", EXIT_DONE)
    assert summary.resume is not None
    rehearsal.resumes_exactly(handler)


def test_a_class_that_fills_the_buffer_with_what_waits_reports_it(virtual: VirtualDrains) -> None:
    rehearsal, handler = virtual.rehearsal(CROWDED, SMALL), OnTheLoop()
    summary = rehearsal.drain(handler, "'chot' in keys or key == 'c1'", only=True)
    assert summary.exit_code == EXIT_CLASS_WAITS
    assert "too many before them wait" in str(summary.error)
    assert ": 0 sub-messages" not in str(summary.error)
    assert summary.last.progress.classes[0].cut
    again = OnTheLoop()
    assert rehearsal.drain(again).exit_code == EXIT_DONE
    assert sorted({*handler.account.began, *again.account.began}) == sorted(rehearsal.places)


def test_a_parked_lane_and_what_waits_keep_the_rest_from_nothing(virtual: VirtualDrains) -> None:
    policy = FailureSettings(retries=0, on_failure=OnFailure.PARK, breaker=False)
    logs = {0: log_of(*CROWD, ["cbad"])}
    rehearsal = virtual.rehearsal(logs, SMALL, failures=policy)

    async def fail(sub: SubMessage) -> None:
        if sub.key == "cbad":
            raise ValueError("it can't be done")

    handler = OnTheLoop(fail)
    summary = rehearsal.drain(handler, "'chot' in keys or key =~ 'c.*'")
    assert summary.exit_code == EXIT_HALTED
    assert len(handler.account.finished) == len(rehearsal.places) - 1
