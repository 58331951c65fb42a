"""Batches: several sub-messages in one call of a handler with ``coalesce`` or ``handle_batch``.

The batcher stands between the workers and the dispatcher, and has the same methods. It does
everything that is special about batches, so that workers, lanes and ledger know nothing of them.
What holds for single sub-messages holds in a batch, too: each one keeps its lane busy until the
call has returned, and each one is finished on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from drainer.core.lanes import Lanes
from drainer.errors import HandleFailed
from drainer.handler import Results, Retry, Skip
from drainer.message import Barrier, SubMessage
from drainer.text.mask import error_text, key_repr

# This many sub-messages are folded into one operation at most, since a crash repeats all of them.
FOLD_MOST = 1_000

Coalesce = Callable[[SubMessage, SubMessage], SubMessage | None]


class SubMessageSource(Protocol):
    """A dispatcher, or an object in front of it that decides what may start.

    It gives out sub-messages one by one, and is told when each of them is finished.
    """

    @property
    def lanes(self) -> Lanes: ...

    @property
    def ready(self) -> int:
        """The number of sub-messages that may start now."""

    def take(self) -> SubMessage | None:
        """Start the next sub-message, if one may start."""

    def take_next_in_lane(self, sub: SubMessage) -> SubMessage | None:
        """Start the sub-message behind ``sub`` in its lane, to be handled in the same call.

        Returns None if it may not start.
        """

    def finish(self, sub: SubMessage) -> None:
        """Finish a sub-message that was handled."""


class BatchOf(Enum):
    """What one call of ``handle_batch`` gets: the first sub-messages of many lanes, or several
    sub-messages of one lane in their order."""

    LANES = "lanes"
    LANE = "lane"


@dataclass(frozen=True, slots=True)
class Batching:
    """How a handler takes several sub-messages together.

    ``coalesce`` folds neighbours of a lane into one operation. A call of ``handle_batch`` has up to
    ``most`` operations. A call takes what is ready and does not wait for more, because in a backlog
    more than enough is ready.
    """

    coalesce: Coalesce | None = None
    most: int = 1
    of: BatchOf = BatchOf.LANES

    @property
    def folds(self) -> bool:
        """Whether one call may have several sub-messages of one lane."""
        return self.coalesce is not None or self.of is BatchOf.LANE

    @property
    def lanes(self) -> int:
        """The maximum number of lanes in one call."""
        return self.most if self.of is BatchOf.LANES else 1

    def as_json(self) -> dict[str, object]:
        return {
            "coalesce": self.coalesce is not None,
            "max_batch": self.most,
            "batch_of": self.of.value,
        }


class InPart(Exception):
    """Raised when a call has done only a part of its operations.

    ``results`` has one entry for each operation: None if it is done, and its error if it is not.
    """

    def __init__(self, results: Results) -> None:
        super().__init__()
        self.results = results

    def __str__(self) -> str:
        errors = [result for result in self.results if result is not None]
        return f"{len(errors)} of {len(self.results)} are not done; first: {error_text(errors[0])}"


def ensure_all_done(results: Results) -> None:
    """Raise an error unless all operations of a call are done.

    If there is a single operation, its own error is raised. If there are several, it is InPart.
    """
    if len(results) == 1 and results[0] is not None:
        raise results[0]
    if any(result is not None for result in results):
        raise InPart(results)


class Batch:
    """One call of the handler.

    Attributes:
        subs: what the handler gets, one sub-message per operation.
        members: the sub-messages that finish with the call, in their order.
        runs: for each lane, its first member and the followers that were taken from behind it.
    """

    __slots__ = ("members", "runs", "subs")

    def __init__(self) -> None:
        self.subs: list[SubMessage] = []
        self.members: list[SubMessage] = []
        self.runs: list[tuple[SubMessage, list[SubMessage]]] = []

    @property
    def attempt(self) -> int:
        return self.members[0].attempt

    def unfold(self) -> None:
        """Undo the folding, so that each member stands for itself again."""
        for sub in self.subs:
            sub._folded = None  # noqa: SLF001

    def __str__(self) -> str:
        more = len(self.members) - 1
        return f"{self.members[0]}" + (f" and {more} more" if more else "")

    def __repr__(self) -> str:
        return repr(self.members[0])


class Batcher:
    """Makes batches of the dispatcher's sub-messages, and takes them apart after the call."""

    def __init__(self, inner: SubMessageSource, batching: Batching) -> None:
        self._batching = batching
        self._looks_behind = batching.folds
        self.calls = 0  # The number of calls that have done at least some of their work.
        self._inner = inner
        self.lanes = inner.lanes

    @property
    def ready(self) -> int:
        """The number of calls that could start now."""
        ready = self._inner.ready
        # A barrier goes into a call of its own, and so may a sub-message that is tried again.
        alone = min(ready, self.lanes.urgent_ones)
        return alone + -(-(ready - alone) // self._batching.lanes)

    def take(self) -> Batch | None:
        """Start the sub-messages that go into one call.

        Returns None when nothing is ready. Raises HandleFailed when ``coalesce`` fails.
        """
        sub = self._inner.take()
        if sub is None:
            return None
        batch = Batch()
        most = self._most(sub)
        while sub is not None:
            batch.runs.append((sub, []))
            batch.members.append(sub)
            most = min(most, self._most(sub))
            if self._looks_behind and not isinstance(sub, Barrier):
                self._add_run(sub, batch, most)
            else:
                batch.subs.append(sub)
            sub = self._next_lane(batch, most)
        return batch

    def finish(self, batch: Batch) -> None:
        """Finish the members of a call that has done its work."""
        self.calls += 1
        batch.unfold()
        finish = self._inner.finish
        for lead, followers in batch.runs:
            for follower in followers:
                finish(follower)
            finish(lead)

    def finish_and_take(self, batch: Batch) -> Batch | None:
        self.finish(batch)
        return self.take()

    def take_apart(
        self, batch: Batch, results: Results
    ) -> Sequence[tuple[SubMessage, BaseException, int]]:
        """Finish the members of a call whose operations are done, as its ``results`` tell.

        A result counts for all members that were folded into its operation. If a member is not
        done, those behind it in its lane count as not done either, since they may have been handled
        without it. They are put back behind it.

        Returns the members that the caller has to end or retry: those that are skipped, and in each
        lane the first that is not done. Each comes with its error and the number of members in its
        operation.
        """
        self.calls += 1
        of_each = [
            (result, len(sub.folded))
            for sub, result in zip(batch.subs, results, strict=True)
            for _ in sub.folded
        ]
        batch.unfold()
        not_done = list[tuple[SubMessage, BaseException, int]]()
        first = 0
        for lead, followers in batch.runs:
            run, ends = [lead, *followers], of_each[first : first + 1 + len(followers)]
            first += len(run)
            stops = (n for n, (end, _) in enumerate(ends) if not isinstance(end, Skip | None))
            stop = next(stops, len(run))
            if stop < len(run):
                not_done.append(self._stopped_at(run, stop, *ends[stop]))
            # The first member finishes last: unless the lane was handed over to another member,
            # it goes on as soon as the first one has finished.
            for sub, (end, _) in [*zip(run, ends, strict=True)][1:stop] + [(lead, ends[0])][:stop]:
                if end is None:
                    self._inner.finish(sub)
                else:
                    not_done.append((sub, end, 1))
        return not_done

    def _stopped_at(
        self, run: Sequence[SubMessage], stop: int, error: BaseException | None, members: int
    ) -> tuple[SubMessage, BaseException, int]:
        assert error is not None
        sub, behind = run[stop], run[stop + 1 :]
        if stop:
            self.lanes.hand_over(run[0], sub)
        for follower in behind:
            follower.attempt += 1
        if behind:
            self.lanes.put_behind(sub, behind)
        if members > 1 and not isinstance(error, Retry):
            for each in run[stop : stop + members]:
                each.together = min(self._most(each), (members + 1) // 2)
        return sub, error, members

    def give_back(self, batch: Batch, *, split: bool) -> list[SubMessage]:
        """Take a call apart that has failed, and put the followers back into their lanes.

        Returns the first member of each lane, which the caller has to retry. With ``split``, the
        members go into calls of half the size, so that the one that fails is alone in the end.
        """
        batch.unfold()
        if split:
            half = (len(batch.members) + 1) // 2
            for sub in batch.members:
                sub.together = min(self._most(sub), half)
        for lead, followers in batch.runs:
            if followers:
                for follower in followers:
                    follower.attempt += 1
                self.lanes.put_behind(lead, followers)
        return [lead for lead, _ in batch.runs]

    def _most(self, sub: SubMessage) -> int:
        """Return the maximum number of members of a call that contains this sub-message."""
        return getattr(sub, "together", FOLD_MOST * self._batching.most)

    def _next_lane(self, batch: Batch, most: int) -> SubMessage | None:
        batching = self._batching
        if (
            batching.of is BatchOf.LANE
            or len(batch.subs) >= batching.most
            or len(batch.members) >= most
            or isinstance(batch.members[0], Barrier)
        ):
            return None
        urgent = self.lanes.urgent
        if urgent is not None and (
            isinstance(urgent, Barrier) or len(batch.members) >= self._most(urgent)
        ):
            return None
        return self._inner.take()

    def _add_run(self, lead: SubMessage, batch: Batch, most: int) -> None:
        """Add the first sub-message of a lane to a batch, and those behind it that fit."""
        batching, lanes = self._batching, self.lanes
        coalesce, runs = batching.coalesce, batch.runs[-1][1]
        operation, folded = lead, [lead]
        made: SubMessage | None = None  # A new sub-message that coalesce has made.
        while len(batch.members) < most:
            sub = lanes.next_in_lane(lead)
            if sub is None:
                break
            into = None
            if coalesce is not None and len(folded) < FOLD_MOST:
                into = coalesced(coalesce, operation, sub, folded[0])
            if into is not None:
                lanes.take_next_in_lane(lead)
                folded.append(sub)
                if into.message is None or into is made:
                    made = into
                    made.message, made.index = sub.message, sub.index
                    made.attempt = max(operation.attempt, sub.attempt)
                operation = into
            elif batching.of is BatchOf.LANE and len(batch.subs) + 1 < batching.most:
                if self._inner.take_next_in_lane(lead) is None:
                    break
                batch.subs.append(_standing_for(operation, folded))
                operation, folded, made = sub, [sub], None
            else:
                break
            runs.append(sub)
            batch.members.append(sub)
        batch.subs.append(_standing_for(operation, folded))


def coalesced(
    coalesce: Coalesce, earlier: SubMessage, later: SubMessage, first: SubMessage
) -> SubMessage | None:
    """Call ``coalesce``, and return the sub-message that stands for both; None to keep them apart.

    ``first`` is the sub-message with which the operation ``earlier`` began. Raises HandleFailed
    when ``coalesce`` fails, or returns anything but None or a SubMessage of the same sub-key.
    """
    keys = first.keys, later.keys
    if keys != (None, None) or first.key is None or first.key != later.key:
        return None  # They share the lane of a message key or a partition, but not a sub-key.
    try:
        into = coalesce(earlier, later)
    except BaseException as error:  # It may call sys.exit().
        raise _not_folded(
            first, later, f"raised {type(error).__name__}: {error_text(error)}"
        ) from error
    if into is None:
        return None
    if not isinstance(into, SubMessage) or isinstance(into, Barrier):
        raise _not_folded(first, later, f"returned a {type(into).__name__}")
    if into.key != first.key or into.keys is not None:
        raise _not_folded(first, later, f"returned one with another sub-key, {into!r}")
    return into


def _not_folded(first: SubMessage, later: SubMessage, what: str) -> HandleFailed:
    return HandleFailed(
        f"coalesce {what}, for {first} up to {later}, sub-key {key_repr(later.key)}",
        hint="Return one SubMessage of the same sub-key that does the work of both, or None to keep"
        " them apart. Neither was handled.",
    )


def _standing_for(operation: SubMessage, folded: list[SubMessage]) -> SubMessage:
    if len(folded) > 1:
        operation._folded = tuple(folded)  # noqa: SLF001
    return operation
