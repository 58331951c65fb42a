"""A limit on the sub-messages of each sub-key, counted in bounded memory, and never too many.

The counts are those of Misra and Gries ("Finding repeated elements", 1982): when there are more
sub-keys than places, something is taken off all counts, and those that reach zero make room. So a
count is never above the truth, and nothing is held back that is within the limit. It is not left to
a library because those that have reached the limit must keep their place, whatever comes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from heapq import nlargest
from operator import itemgetter

from drainer.core.claims import place_of
from drainer.policy.rules.settings import greater

PLACES = 100_000  # sub-keys that are counted; about 20 MB when all are taken
KEPT_MOST = 10_000  # of them in the plan
KEPT_FROM = 64  # a lower count is not worth a place in the plan, unless it is the limit
TEXT_MOST = 80  # characters; of a longer sub-key a digest is remembered


class KeyLimit:
    """Lets ``most`` sub-messages of each sub-key pass.

    With at most ``places`` distinct sub-keys it is exact. With more of them, so far as ``passed``
    sub-messages have passed, ``4 * passed / places`` more of one sub-key may pass, and no fewer;
    once half of the places are taken by sub-keys that have reached the limit, new ones are not
    counted any more.

    ``known`` are counts of an earlier run, by ``limit_text``, and ``counted`` all those of a limit
    that this one goes on from (``all_counts``).
    """

    def __init__(
        self,
        most: int,
        known: Mapping[str, int] | None = None,
        places: int = PLACES,
        counted: Mapping[str, int] | None = None,
    ):
        self.most = most
        self._places = places
        self._counts: dict[str, int] = greater(counted or {}, known or {})
        self._kept: dict[str, None] = dict.fromkeys(known or {})  # those that the plan tells
        self._shut = sum(count >= most for count in self._counts.values())
        self._news: dict[str, None] = {}
        self._kept_from = min(KEPT_FROM, most)
        for text, count in self._counts.items():
            if count >= self._kept_from:
                self._keep(text)

    def passes(self, keys: Iterable[Hashable]) -> bool:
        """Whether a sub-message of these sub-keys is within the limit, and counts it then.

        One of several sub-keys is held back only when all of them have reached the limit.
        """
        texts = [limit_text(key) for key in keys]
        counts, most = self._counts, self.most
        if texts and all(counts.get(text, 0) >= most for text in texts):
            return False
        for text in texts:
            self.count(text)
        return True

    def is_shut(self, text: str) -> bool:
        """Whether the sub-key of that ``limit_text`` has reached the limit."""
        return self._counts.get(text, 0) >= self.most

    def counts(self) -> dict[str, int]:
        """What the plan tells: the sub-keys with the most, that came first when there are many."""
        return {text: self._counts[text] for text in self._kept}

    def news(self) -> dict[str, int]:
        """What of that has risen since it was last asked, for the journal."""
        found, self._news = self._news, {}
        return {text: self._counts[text] for text in found if text in self._counts}

    def all_counts(self) -> list[dict[str, int]]:
        """All of them, for a limit that goes on from here."""
        return [self._counts]

    def count(self, text: str) -> None:
        """Counts one that passes."""
        counts = self._counts
        count = counts.get(text, 0) + 1
        if count > self.most:
            return  # beside a sub-key that may still pass
        if count == 1 and len(counts) >= self._places and not self._make_room():
            return
        counts[text] = count
        if count >= self._kept_from and text not in self._kept:
            self._keep(text)
        if text in self._kept:
            self._news[text] = None
        if count == self.most:
            self._shut += 1

    def _keep(self, text: str) -> None:
        if len(self._kept) < KEPT_MOST:
            self._kept[text] = None

    def _make_room(self) -> bool:
        counts, most = self._counts, self.most
        if 2 * self._shut >= self._places:
            return False
        waiting = sorted(count for count in counts.values() if count < most)
        less = waiting[len(waiting) // 2]
        for text in [text for text, count in counts.items() if count < most]:
            if counts[text] > less:
                counts[text] -= less
            else:
                del counts[text]
                self._kept.pop(text, None)
        return True


class SharedLimit:
    """The limits of all claims of a drain as one, for a task that has every sub-key.

    Each counts its own sub-keys, as a task that has only its claim would, and goes on from here.
    """

    def __init__(self, shares: Sequence[KeyLimit]) -> None:
        self.most = shares[0].most
        self._shares = shares

    def passes(self, keys: Iterable[Hashable]) -> bool:
        """As of ``KeyLimit``."""
        shares = self._shares
        found = [(shares[place_of(key) % len(shares)], limit_text(key)) for key in keys]
        if found and all(share.is_shut(text) for share, text in found):
            return False
        for share, text in found:
            share.count(text)
        return True

    def counts(self) -> dict[str, int]:
        return most_of(share.counts() for share in self._shares)

    def news(self) -> dict[str, int]:
        return most_of(share.news() for share in self._shares)

    def all_counts(self) -> list[dict[str, int]]:
        """By the number of the claim."""
        return [counts for share in self._shares for counts in share.all_counts()]


def most_of(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What several counts, none of which is too high, say together; no more than a plan holds."""
    found: dict[str, int] = {}
    for each in counts:
        found = greater(found, each)
    if len(found) <= KEPT_MOST:
        return found
    return dict(nlargest(KEPT_MOST, found.items(), key=itemgetter(1)))


def limit_text(key: Hashable) -> str:
    """A sub-key as the limit remembers it: its repr, or the beginning of that and a digest."""
    text = repr(key)
    if len(text) <= TEXT_MOST:
        return text
    digest = blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()
    return f"{text[: TEXT_MOST // 4]}… {digest}"
