"""A limit on the sub-messages of each sub-key, counted in bounded memory, and never too many.

The counts are those of Misra and Gries ("Finding repeated elements", 1982): when there are more
sub-keys than places, something is taken off all counts, and those that reach zero make room. So a
count is never above the truth, and nothing is held back that is within the limit. It is not left to
a library because those that have reached the limit must keep their place, whatever comes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b

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

    ``known`` are counts of an earlier run, by ``limit_text``.
    """

    def __init__(self, most: int, known: Mapping[str, int] | None = None, places: int = PLACES):
        self.most = most
        self._places = places
        self._counts: dict[str, int] = dict(known or {})
        self._kept: dict[str, None] = dict.fromkeys(self._counts)  # those that the plan tells
        self._shut = sum(count >= most for count in self._counts.values())
        self._newly_shut: list[str] = []

    def passes(self, keys: Iterable[Hashable]) -> bool:
        """Whether a sub-message of these sub-keys is within the limit, and counts it then.

        One of several sub-keys is held back only when all of them have reached the limit.
        """
        texts = [limit_text(key) for key in keys]
        counts, most = self._counts, self.most
        if texts and all(counts.get(text, 0) >= most for text in texts):
            return False
        for text in texts:
            self._count(text)
        return True

    def counts(self) -> dict[str, int]:
        """What the plan tells: the sub-keys with the most, that came first when there are many."""
        return {text: self._counts[text] for text in self._kept}

    def newly_shut(self) -> dict[str, int]:
        """Sub-keys that have reached the limit since it was last asked, for the journal."""
        found, self._newly_shut = self._newly_shut, []
        return dict.fromkeys(found, self.most)

    def _count(self, text: str) -> None:
        counts = self._counts
        count = counts.get(text, 0) + 1
        if count > self.most:
            return  # beside a sub-key that may still pass
        if count == 1 and len(counts) >= self._places and not self._make_room():
            return
        counts[text] = count
        if (
            count >= min(KEPT_FROM, self.most)
            and text not in self._kept
            and len(self._kept) < KEPT_MOST
        ):
            self._kept[text] = None
        if count == self.most:
            self._shut += 1
            if text in self._kept:
                self._newly_shut.append(text)

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


def limit_text(key: Hashable) -> str:
    """A sub-key as the limit remembers it: its repr, or the beginning of that and a digest."""
    text = repr(key)
    if len(text) <= TEXT_MOST:
        return text
    digest = blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()
    return f"{text[: TEXT_MOST // 4]}… {digest}"
