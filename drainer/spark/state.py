"""The state of a drain on Spark: what its driver says to tasks, and what they report of their work.

Below ``DRAIN_ID/`` lie objects, each written once and whole, but for ``control``, which only the
driver writes:

    control                          epoch, why to stop, whether to pause
    EPOCH/WAVE/CLAIM/ATTEMPT/begun   who it is
    EPOCH/WAVE/CLAIM/ATTEMPT/settled how many records of earlier attempts it goes on from
    EPOCH/WAVE/CLAIM/ATTEMPT/00000001 … records, with nothing left out in between
    EPOCH/WAVE/CLAIM/ATTEMPT/ended   how it ended

Each line in them is a line of a journal, with its checksum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from drainer.core.codec import Whole
from drainer.core.merge import Record, StateReference, Told, merged
from drainer.core.plan import OffsetPlan
from drainer.errors import (
    Interrupted,
    LockLost,
    PlanNotWritten,
    PlanRefused,
    StateLost,
    StateRefused,
)
from drainer.spark.alive import Process, is_dead, this_process
from drainer.spark.objects import Objects
from drainer.spark.records import TaskRecords
from drainer.store.journal import decode_line, encode_line
from drainer.store.plan_file import PlanPlace

LOOK_LOCAL_S, LOOK_REMOTE_S = 0.2, 1.0  # between two looks whether another one has taken over
LEASE_MOUNTED_S = 90.0  # for NFS, which keeps what it knows of a folder for up to 60 s
LEASE_LOCAL_S, LEASE_REMOTE_S = 3.0, 15.0  # after that long without a look a task begins no more
JOURNAL_LOCAL_S, JOURNAL_REMOTE_S = 0.05, 1.0  # between two records of a task
ASK_AT_ONCE = 16  # questions to an object store at the same time

CONTROL, BEGUN, SETTLED, ENDED = "control", "begun", "settled", "ended"


Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Control:
    """What the driver says to all tasks.

    ``epoch`` is 1 for the first driver of a drain and one more for each that takes over: tasks of
    an earlier one end. ``stop`` is why all are to end; while ``paused`` they begin nothing.
    ``mounted`` says that the state is a folder which other machines see, and maybe late.
    """

    epoch: Whole
    stop: str | None = None
    paused: bool = False
    mounted: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try of a task at the share of a wave that a claim is (its selector: "2/8" or "all").

    ``number`` rises from one to the next; what it counts is its owner's business.
    """

    epoch: int
    wave: int
    claim: str
    number: int

    @property
    def share(self) -> tuple[int, int, str]:
        """What all attempts at the same have in common."""
        return self.epoch, self.wave, self.claim

    @property
    def name(self) -> str:
        return f"{share_name(*self.share)}/{self.number}"


def state_beside(plan: PlanPlace) -> str:
    """Where the state of a plan is when nothing else was said."""
    if isinstance(plan, Path):
        return str(plan.with_name(f"{plan.name}.state").absolute())
    place, mark, options = plan.partition("?")
    return f"{place}.state{mark}{options}"


def told_since(reference: StateReference, drain_id: str) -> list[tuple[str, Told]]:
    """What tasks reported since the wave that a plan is at, by the claim's selector.

    Raises UsageError, StateRefused or StateLost when it can't be had.
    """
    state = State.open(reference.uri, drain_id)
    if state.control() is None:
        raise StateLost(f"nothing of this drain is at {state.uri}")
    shares = [share for share in state.shares() if not reference.holds(*share[:2])]
    return [(share[2], state.told(*share)) for share in shares]


class State:
    """The objects of one drain."""

    def __init__(self, objects: Objects, drain_id: str) -> None:
        self.objects = objects
        self.drain_id = drain_id
        self.look_s = LOOK_LOCAL_S if objects.is_local else LOOK_REMOTE_S
        self.journal_interval_s = JOURNAL_LOCAL_S if objects.is_local else JOURNAL_REMOTE_S
        self.lease_s = LEASE_LOCAL_S if objects.is_local else LEASE_REMOTE_S
        self._written_s: dict[str, float] = {}  # when what fences others was there, by name
        self._followed: list[tuple[int, int, str]] | None = None
        self._read: dict[Attempt, int] = {}  # records, of those that are followed
        self._askers: ThreadPoolExecutor | None = None

    @classmethod
    def open(cls, uri: str, drain_id: str) -> State:
        """Makes nothing there. Raises UsageError or StateRefused when the URI is no good."""
        return cls(Objects.open(uri), drain_id)

    @property
    def uri(self) -> str:
        return self.objects.uri

    # --- what the driver says ---

    def control(self) -> Control | None:
        """None when no driver has said anything, or the state was removed. Raises StateLost."""
        # Asked twice: where a file is replaced over a network it may be absent for a moment.
        control = self._body(CONTROL, Control) or self._body(CONTROL, Control)
        if control is not None:
            self._heed(control)
        return control

    def set_control(self, control: Control) -> None:
        """For all tasks; those of an earlier epoch end. Raises PlanNotWritten or StateLost."""
        self._put(CONTROL, control)
        self._heed(control)
        self._written_s.setdefault(f"{CONTROL} {control.epoch}", time.monotonic())

    # --- what tasks report ---

    def begin(self, attempt: Attempt, starts: Mapping[int, int] | None = None) -> TaskRecords:
        """Begins an attempt; it is to ``settle`` before it handles anything.

        ``starts`` are the offsets at which its share of each partition begins: nothing below them
        is said to be finished by its records, wherever its watermark is.

        Raises LockLost when it is not to begin any more, StateRefused when it has begun before,
        PlanNotWritten or StateLost when that can't be written.
        """
        control = self.control()
        if control is None or control.epoch > attempt.epoch:
            raise overtaken(attempt, control)
        name = self._name(f"{attempt.name}/{BEGUN}")
        if self.objects.get(name) is not None:
            raise StateRefused(
                f"attempt {attempt.number} at claim {attempt.claim} of wave {attempt.wave} has"
                " begun before",
                hint="this is a bug of drainer: each attempt has a number of its own",
            )
        self._put(f"{attempt.name}/{BEGUN}", this_process())
        self._written_s[attempt.name] = time.monotonic()
        return TaskRecords(self.objects, self._name(attempt.name), starts or {})

    def attempts(
        self, epoch: int | None = None, wave: int | None = None, claim: str | None = None
    ) -> list[Attempt]:
        """Those that have begun, sorted; of one epoch, wave and claim as far as that is said.

        Raises StateLost.
        """
        if epoch is None:
            numbers = self._numbers("")
            return [each for n in numbers for each in self.attempts(n, wave, claim)]
        if wave is None:
            waves = self._numbers(str(epoch))
            return [each for n in waves for each in self.attempts(epoch, n, claim)]
        if claim is None:
            claims = self.objects.children(self._name(f"{epoch}/{wave}"))
            selectors = [name.replace("of", "/") for name in claims]
            return sorted(a for each in selectors for a in self.attempts(epoch, wave, each))
        numbers = self._numbers(share_name(epoch, wave, claim))
        return [Attempt(epoch, wave, claim, number) for number in numbers]

    def outcome(self, attempt: Attempt) -> Mapping[str, Any] | None:
        """What an attempt said when it ended; None when it hasn't. Raises StateLost."""
        return self._body(f"{attempt.name}/{ENDED}", dict[str, Any])

    def settle(self, attempt: Attempt, look_s: float, lease_s: float) -> Record:
        """Waits until all earlier attempts at the same share are over; gives what they finished.

        They are when they have ended, their process is dead, or so much time has passed since this
        one began that they know of it, or begin nothing more (``Fence``). What they might still
        write after that is left out by everyone: what this attempt goes on from is written down.

        Raises LockLost when a later attempt or driver has taken over, StateLost when that isn't
        known.
        """
        since_s = self._written_s.get(attempt.name, time.monotonic())
        earlier = [a for a in self.attempts(*attempt.share) if a.number < attempt.number]
        self._wait(earlier, since_s, look_s, lease_s, lambda: self.insist_on(attempt))
        limits = self._limits(earlier)
        taken = {a.number: len(self._records(a, limits.get(a.number))[0]) for a in earlier}
        self._put(f"{attempt.name}/{SETTLED}", taken)
        return self.told(*attempt.share).record

    def settle_epochs(self, below: int) -> None:
        """Waits until no attempt of an epoch below this one does anything any more.

        ``set_control`` with this epoch comes first. Raises StateLost when that isn't known.
        """
        since_s = self._written_s.get(f"{CONTROL} {below}", time.monotonic())
        earlier = [a for a in self.attempts() if a.epoch < below]
        self._wait(earlier, since_s, self.look_s, self.lease_s, lambda: None)

    def at_rest(self, below: int) -> bool:
        """Whether ``settle_epochs`` has nobody to wait for. Raises StateLost."""
        return all(self._is_over(each) for each in self.attempts() if each.epoch < below)

    def insist_on(self, attempt: Attempt) -> Control:
        """Raises LockLost when a newer driver or attempt has taken over, StateLost.

        Of a wave that was removed nothing is left to be done, so there is no attempt at it either.
        """
        control = self.control()
        if control is None or control.epoch > attempt.epoch:
            raise overtaken(attempt, control)
        newest = max(self._numbers(share_name(*attempt.share)), default=attempt.number)
        removed = self.objects.get(self._name(f"{attempt.name}/{BEGUN}")) is None
        if removed or newest > attempt.number:
            raise overtaken(attempt, control)
        return control

    def told(self, epoch: int, wave: int, claim: str) -> Told:
        """All that the attempts at one share reported, as one record. Raises StateLost.

        An attempt's accounts go on from those of the earlier ones, so the last one's are the sum.
        """
        attempts = self.attempts(epoch, wave, claim)
        limits = self._limits(attempts)
        records: list[Record] = []
        torn = False
        for attempt in attempts:
            found, spoilt = self._records(attempt, limits.get(attempt.number))
            records += found
            torn = torn or spoilt
        return Told(merged(records), len(records), torn)

    def shares(self) -> list[tuple[int, int, str]]:
        """Every (epoch, wave, claim) that an attempt has begun at, sorted. Raises StateLost."""
        return sorted({attempt.share for attempt in self.attempts()})

    # --- what a driver follows ---

    def follow(self, epoch: int, wave: int, claims: Iterable[str]) -> None:
        """From here on ``news`` looks at these shares alone."""
        self._followed = [(epoch, wave, claim) for claim in claims]

    def news(self) -> list[tuple[Attempt, Record]]:
        """What has appeared since the last call: each record once, those of an attempt in order.

        Asks for the next record of each attempt only. Raises StateLost.
        """
        shares = self.shares() if self._followed is None else self._followed
        attempts = [
            a for each in self._ask(lambda share: self.attempts(*share), shares) for a in each
        ]
        # Here alone: a wave may begin to be followed while another thread asks.
        self._read = {attempt: self._read.get(attempt, 0) for attempt in attempts}
        found = self._ask(self._next_records, attempts)
        return [
            (a, record) for a, records in zip(attempts, found, strict=True) for record in records
        ]

    # --- whether all see the same ---

    def probe(self, epoch: int) -> str:
        """Writes something, and gives its name."""
        name = f"{epoch}-probes/{uuid4().hex}"
        self._put(name, this_process())
        return name

    def has(self, name: str) -> bool:
        return self.objects.get(self._name(name)) is not None

    # --- where handlers are open ---

    def opening(self, epoch: int) -> str:
        """A process is about to open the handler; gives the name to be said when it is closed.

        Raises LockLost or Interrupted when the drain is over, PlanNotWritten or StateLost.
        """
        insist_on_driver(epoch, self.control())
        name = f"{epoch}-handlers/{uuid4().hex}"
        self._put(f"{name}/{BEGUN}", this_process())
        return name

    def closed(self, name: str, failure: str | None) -> None:
        """The handler of that name is closed; ``failure`` is why that failed, if it did."""
        line = encode_line({"failure": failure})
        self.objects.put(self._name(f"{name}/{ENDED}"), line, beside=True)

    def handlers(self, epoch: int) -> tuple[int, list[str]]:
        """How many are open in processes that live, and why some failed to close."""
        still_open, failures = 0, list[str]()
        for child in self.objects.children(self._name(f"{epoch}-handlers")):
            name = f"{epoch}-handlers/{child}"
            ended = self._body(f"{name}/{ENDED}", dict[str, str | None])
            if ended is not None:
                failures += filter(None, ended.values())
            elif not self._is_dead(name):
                still_open += 1
        return still_open, failures

    # --- and the end ---

    def remove_wave(self, epoch: int, wave: int) -> None:
        """Removes what tasks reported of a wave, when the plan on disk has it. Raises StateLost."""
        self.objects.remove(self._name(f"{epoch}/{wave}"))

    def remove(self, plan: PlanPlace | None = None) -> None:
        """Removes all of the drain, control first: a task that still runs ends by that.

        The folder that is beside its ``plan`` goes too, if nothing else is in it.
        """
        self.objects.remove(self._name(CONTROL))
        self.objects.remove(self.drain_id)
        if plan is not None and self.uri == state_beside(plan):
            with suppress(OSError):
                Path(self.uri).rmdir()

    def _heed(self, control: Control) -> None:
        # What one machine writes to a mounted folder another one may not see for a minute.
        if control.mounted:
            self.look_s, self.lease_s = LOOK_REMOTE_S, LEASE_MOUNTED_S

    def _wait(
        self,
        earlier: Sequence[Attempt],
        since_s: float,
        look_s: float,
        lease_s: float,
        insist: Callable[[], object],
    ) -> None:
        over_s = since_s + lease_s + look_s
        left = list(earlier)
        while True:
            insist()
            left = [attempt for attempt in left if not self._is_over(attempt)]
            now_s = time.monotonic()
            if not left or now_s >= over_s:
                return
            time.sleep(min(look_s, over_s - now_s))

    def _is_over(self, attempt: Attempt) -> bool:
        ended = self.objects.get(self._name(f"{attempt.name}/{ENDED}"))
        return ended is not None or self._is_dead(attempt.name)

    def _is_dead(self, name: str) -> bool:
        begun = self._body(f"{name}/{BEGUN}", Process)
        return begun is not None and is_dead(begun)  # or it is on the way: time will show

    def _limits(self, attempts: Iterable[Attempt]) -> dict[int, int]:
        """How many records of which attempt count: as many as a later one goes on from."""
        limits: dict[int, int] = {}
        for attempt in attempts:
            limits |= self._body(f"{attempt.name}/{SETTLED}", dict[Whole, Whole]) or {}
        return limits

    def _records(self, attempt: Attempt, limit: int | None = None) -> tuple[list[Record], bool]:
        """The records of an attempt up to the first that is not whole, and whether one isn't."""
        records: list[Record] = []
        while limit is None or len(records) < limit:
            number = len(records) + 1
            data = self.objects.get(self._name(f"{attempt.name}/{number:08d}"))
            if data is None:
                break
            try:
                records.append(decode_line(data, Record))
            except ValueError:
                return records, True
        names = self.objects.children(self._name(attempt.name)) if limit is None else []
        missing = any(name.isdecimal() and int(name) > len(records) for name in names)
        return records, missing or (limit is not None and len(records) < limit)

    def _next_records(self, attempt: Attempt) -> list[Record]:
        records: list[Record] = []
        while True:
            name = f"{attempt.name}/{self._read[attempt] + 1:08d}"
            data = self.objects.get(self._name(name))
            if data is None:
                return records
            try:
                records.append(decode_line(data, Record))
            except ValueError as error:
                raise self._spoilt(name) from error
            self._read[attempt] += 1

    def _ask(self, question: Callable[[Any], Any], about: Sequence[Any]) -> list[Any]:
        if self.objects.is_local or len(about) < 2:
            return [question(each) for each in about]
        if self._askers is None:
            self._askers = ThreadPoolExecutor(ASK_AT_ONCE, thread_name_prefix="state")
        return list(self._askers.map(question, about))

    def _numbers(self, prefix: str) -> list[int]:
        names = self.objects.children(self._name(prefix) if prefix else self.drain_id)
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def _body(self, name: str, kind: type[Kind]) -> Kind | None:
        data = self.objects.get(self._name(name))
        if data is None:
            return None
        try:
            return decode_line(data, kind)
        except ValueError as error:
            raise self._spoilt(name) from error

    def _put(self, name: str, body: object) -> None:
        self.objects.put(self._name(name), encode_line(body))

    def _name(self, name: str) -> str:
        return f"{self.drain_id}/{name}"

    def _spoilt(self, name: str) -> StateLost:
        return StateLost(
            f"{self.uri}/{self._name(name)} is damaged: nothing of drainer's writes such a thing",
            hint="find out who else writes there; what is in the plan stays true, and what the"
            " tasks reported up to there",
        )


def take_over(plan: OffsetPlan, path: PlanPlace, say: Callable[[str], None]) -> Callable[[], None]:
    """Makes sure that no task of a former driver does anything any more, for a plan with a state.

    The plan and the lock on its group are to be held. What the tasks reported is to be loaded again
    after this: there may be more since it was looked at. The epoch from here on is that of
    the state's ``control``.

    Gives what removes all of that, once the plan on disk has it. Raises PlanRefused or
    StateRefused when they can't be reached.
    """
    assert plan.state is not None
    try:
        state = State.open(plan.state.uri, plan.drain_id)
        control = state.control()
        if control is None:
            raise PlanRefused(f"the state at {state.uri} is gone since the plan was looked at")
        epoch = max(control.epoch, plan.state.epoch) + 1
        state.set_control(Control(epoch, "the drain goes on without tasks"))
        if not state.at_rest(below=epoch):
            say("waiting until the tasks of the former driver have ended")
        state.settle_epochs(epoch)
    except (PlanNotWritten, StateLost) as error:
        raise StateRefused(
            f"tasks of the former driver can't be stopped: {error}",
            hint="let this process write there, and say the same again; nothing was touched",
        ) from error

    def forget() -> None:
        try:
            state.remove(path)
        except StateLost as error:
            say(f"the state stays at {state.uri}, and nothing needs it any more: {error}")

    return forget


def share_name(epoch: int, wave: int, claim: str) -> str:
    return f"{epoch}/{wave}/{claim.replace('/', 'of')}"


def overtaken(attempt: Attempt, control: Control | None) -> LockLost:
    """What to raise for an attempt that is not to go on."""
    if (gone := _taken_over(attempt.epoch, control)) is not None:
        return gone
    return LockLost(
        f"another attempt at claim {attempt.claim} of wave {attempt.wave} has taken over",
        hint="nothing is to be done here",
    )


def insist_on_driver(epoch: int, control: Control | None) -> None:
    """Raises LockLost when the driver of a task is gone, Interrupted when it asks for a stop."""
    if (gone := _taken_over(epoch, control)) is not None:
        raise gone
    # A mounted folder may still show what an earlier driver said.
    if control is not None and control.epoch == epoch and control.stop is not None:
        raise Interrupted(control.stop)


def _taken_over(epoch: int, control: Control | None) -> LockLost | None:
    if control is None:
        return LockLost(
            "the drain's state was removed: it is over, or goes on elsewhere",
            hint="nothing is to be done here",
        )
    if control.epoch > epoch:
        return LockLost(
            f"another driver has taken the drain over (epoch {control.epoch}, and this task is of"
            f" {epoch})",
            hint="nothing is to be done here",
        )
    return None
