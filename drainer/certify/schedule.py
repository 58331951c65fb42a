"""The schedules that a drain may make of some sub-messages: drawn from the drain's own core."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from drainer.certify.form import short
from drainer.certify.subject import again
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.message import Barrier, Message, SubMessage
from drainer.operations.in_memory import ends_of
from drainer.splitting import split_up

SubIndex = tuple[int, int]  # a message by its position in the sample, and the index in the message
Step = tuple[SubIndex, ...]  # what is in the handler at the same time
Choose = Callable[[int], Sequence[int]]  # which of so many may go next, the earliest being 0


@dataclass(frozen=True, slots=True)
class Spec:
    """Sub-message as a schedule needs it; no ``keys`` are a barrier's."""

    partition: int
    keys: tuple[Hashable, ...]
    text: str

    @classmethod
    def of(cls, sub: SubMessage) -> Spec:
        if isinstance(sub, Barrier):
            return cls(sub.message.partition, (), f"{sub} (a barrier)")
        keys = (sub.key,) if sub.keys is None else sub.keys
        names = ", ".join(short(key, 60) for key in keys)
        word = "sub-key" if len(keys) == 1 else "sub-keys"
        return cls(sub.message.partition, keys, f"{sub} ({word} {names})")

    def depends_on(self, other: Spec) -> bool:
        """Whether their order has to be kept."""
        if not (self.keys and other.keys):
            return self.partition == other.partition
        return not set(self.keys).isdisjoint(other.keys)


@dataclass(frozen=True)
class SampleWork:
    """The sub-messages of some messages of the sample, in the order in which they enter lanes."""

    sample: Sequence[Message]
    specs: Mapping[SubIndex, Spec]
    chosen: tuple[int, ...]

    @classmethod
    def of(
        cls, sample: Sequence[Message], split: Callable[[Message], Iterable[SubMessage]] | None
    ) -> SampleWork:
        """Raises SplitFailed when ``split`` rejects one of them."""
        dispatcher = dispatcher_of(sample)
        specs = {}
        for position, each in enumerate(sample):
            subs = split_up(split, each)
            dispatcher.deliver(each, subs)
            specs.update({(position, sub.index): Spec.of(sub) for sub in subs})
        return cls(sample, specs, tuple(range(len(sample))))

    def only(self, chosen: Sequence[int]) -> SampleWork:
        """The work of some of its messages."""
        wanted = tuple(sorted(chosen))
        inside = set(wanted)
        specs = {place: spec for place, spec in self.specs.items() if place[0] in inside}
        return SampleWork(self.sample, specs, wanted)

    def whole_partitions(self) -> list[SampleWork]:
        """Parts of it that have one serial schedule each.

        Where sub-messages behind a barrier enter the lanes late, those of other partitions may
        come before them: both orders are serial then, and nothing is to be compared with.
        """
        partitions = {spec.partition for spec in self.specs.values()}
        if len(partitions) < 2 or all(spec.keys for spec in self.specs.values()):
            return [self]
        return [
            self.only([p for p in self.chosen if self.sample[p].partition == partition])
            for partition in sorted(partitions)
        ]

    @cached_property
    def serial(self) -> list[Step]:
        """One after the other, in order."""
        return [(place,) for place in self.specs]

    @property
    def has_choice(self) -> bool:
        """Whether any two of them may change places."""
        return any(not one.depends_on(other) for one, other in pairwise(self.specs.values()))

    def steps(self, choose: Choose) -> list[Step]:
        """A schedule of the work; ``choose`` picks what goes next while anything is left."""
        dispatcher = dispatcher_of([self.sample[position] for position in self.chosen])
        rank = {place: number for number, place in enumerate(self.specs)}
        of_message = Counter(position for position, _ in self.specs)
        waiting: dict[int, SubIndex] = {}
        for position in self.chosen:
            places = [(position, index) for index in range(of_message[position])]
            subs = [_stand_in(self.specs[place]) for place in places]
            dispatcher.deliver(again(self.sample[position]), subs)
            waiting.update((id(sub), place) for sub, place in zip(subs, places, strict=True))
        free: list[tuple[int, int, SubMessage]] = []
        steps: list[Step] = []
        while True:
            while (sub := dispatcher.take()) is not None:
                insort(free, (rank[waiting[id(sub)]], id(sub), sub))
            if not free:
                return steps
            taken = [free.pop(index)[2] for index in sorted(choose(len(free)), reverse=True)]
            steps.append(tuple(sorted(waiting[id(sub)] for sub in taken)))
            for sub in taken:
                dispatcher.finish(sub)

    def words(self, places: Sequence[SubIndex], most: int = 4) -> str:
        """Some sub-messages as a person reads them."""
        texts = [self.specs[place].text for place in places[:most]]
        if len(places) > most:
            texts.append(f"{len(places) - most} more")
        return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def first_free(_: int) -> Sequence[int]:
    """The serial schedule."""
    return (0,)


def last_free(free: int) -> Sequence[int]:
    """Turns round every two that may change places."""
    return (free - 1,)


def dispatcher_of(sample: Sequence[Message]) -> Dispatcher:
    """A dispatcher for these messages. Raises ValueError when their offsets don't rise."""
    return Dispatcher({number: Ledger(0, end) for number, end in ends_of(sample).items()})


def _stand_in(spec: Spec) -> SubMessage:
    return SubMessage(keys=spec.keys) if spec.keys else Barrier()
