"""What is finished above the watermark, as text for the metadata of a commit.

The wire format is that of Confluent's Parallel Consumer, so that a group can be handed over from it
and to it: padded standard Base64 of a magic byte and a body, which tells for each offset from the
committed one up to the highest finished one whether it is finished.
"""

from __future__ import annotations

import base64
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import zstandard

from drainer.core.progress import Range, join_ranges

METADATA_BYTES = 4096  # what brokers take (offset.metadata.max.bytes), unless told otherwise

# More than fits is not looked at, in either direction: foreign bytes must not fill the memory.
RANGES_MOST = 65_536
BITS_MOST = 2**23
BODY_BYTES_MOST = BITS_MOST // 8 + 64
WINDOW_BYTES_MOST = 8 * 1024 * 1024  # of zstd; every decoder is advised to take as much
INFLATED_AT_ONCE = 64  # compressed bytes, which become 2 MiB at most

# A bit for each offset is no shorter than the lengths of runs when these are long, and slow to try.
BITS_TRIED = 65_536
BITS_TRIED_PER_RANGE = 1024

ZSTD_LEAST = 13  # bytes; no frame with anything in it is shorter
_RUN_OF_ONES = re.compile("1+")


@dataclass(frozen=True, slots=True)
class Form:
    """One of the format's bodies: bits or the lengths of runs, and how numbers are written."""

    bits: bool
    number: str  # of struct, big-endian
    zstd: bool = False

    @property
    def width(self) -> int:
        return struct.calcsize(self.number)

    @property
    def most(self) -> int:
        """The highest number, which has a sign in Java."""
        return int(2 ** (8 * self.width - 1)) - 1


BITS, RUNS, BITS_V1, RUNS_V1 = (
    Form(bits=True, number=">i"),
    Form(bits=False, number=">i"),
    Form(bits=True, number=">h"),
    Form(bits=False, number=">h"),
)
PLAIN = {b"o": BITS, b"e": RUNS, b"l": BITS_V1, b"n": RUNS_V1}
PACKED = {b"o": b"s", b"e": b"p", b"l": b"a", b"n": b"J"}  # the same within a frame of zstd
FORMS = PLAIN | {PACKED[magic]: Form(form.bits, form.number, True) for magic, form in PLAIN.items()}


def encode(committed: int, finished: Iterable[Range], bytes_most: int = METADATA_BYTES) -> str:
    """The shortest text for the finished ranges above an offset that is to be committed.

    What does not fit into ``bytes_most`` is left out from the far end. Nothing to tell is "".
    """
    front = _Front(committed, finished)
    most = bytes_most // 4 * 3  # what Base64 makes so many bytes of
    # So many ranges always fit as plain runs; zstd may get more in.
    fits, tried = 0, min(front.count, max(1, (most - 1) // 8))
    while fits < tried and len(front.shortest(tried)) <= most:
        fits, tried = tried, min(front.count, tried * 2)
    while fits < tried - 1:
        middle = (fits + tried) // 2
        if len(front.shortest(middle)) <= most:
            fits = middle
        else:
            tried = middle
    return base64.b64encode(front.shortest(fits)).decode() if fits else ""


def decode(committed: int, text: str) -> tuple[Range, ...] | None:
    """The finished ranges that the metadata of a commit tells; None when it is of another format.

    Takes some tens of MiB of memory at most, whatever the text says. More ranges than
    ``RANGES_MOST`` are left out from the far end.
    """
    if not text:
        return ()
    try:
        data = base64.b64decode(text, validate=True)
        form = FORMS.get(data[:1])
        if form is None:
            return None
        body = _inflate(data[1:]) if form.zstd else data[1:]
        found = _read_bits(form, body) if form.bits else _read_runs(form, body)
    except (ValueError, struct.error, zstandard.ZstdError):
        return None
    return join_ranges((committed + first, committed + end) for first, end in found)


class _Front:
    """Finished ranges above an offset, ready to be written in each form, from the near end on."""

    def __init__(self, committed: int, finished: Iterable[Range]) -> None:
        limit = committed + RUNS.most
        ranges = join_ranges(
            (max(first, committed), min(end, limit))
            for first, end in finished
            if end > committed and first < limit
        )[:RANGES_MOST]
        behind = committed
        runs: list[int] = []
        for first, end in ranges:
            runs += (first - behind, end - first)
            behind = end
        self.count = len(ranges)
        self._ends = [end - committed for _, end in ranges]
        self._runs = struct.pack(f">{len(runs)}i", *runs)
        long = next((n for n, run in enumerate(runs) if run > RUNS_V1.most), len(runs))
        self._short_runs = struct.pack(f">{long}h", *runs[:long])
        # As bits only so far as that may pay.
        tried = [BITS_TRIED + n * BITS_TRIED_PER_RANGE for n in range(self.count)]
        dense = bisect_right(self._ends, BITS_MOST)
        while dense and self._ends[dense - 1] > tried[dense - 1]:
            dense -= 1
        self._dense = dense
        digits = "".join(
            "0" * gap + "1" * run
            for gap, run in zip(runs[: 2 * dense : 2], runs[1 : 2 * dense : 2], strict=True)
        )
        bits = int(digits[::-1], 2) if digits else 0
        self._bits = bits.to_bytes((len(digits) + 7) // 8, "little")

    def shortest(self, count: int) -> bytes:
        """The first ``count`` ranges, magic byte and all, in the form that needs the fewest."""
        plain = [b"e" + self._runs[: 8 * count]]
        if len(self._short_runs) >= 4 * count:
            plain.append(b"n" + self._short_runs[: 4 * count])
        if count <= self._dense:
            span = self._ends[count - 1]
            bits = bytearray(self._bits[: (span + 7) // 8])
            bits[-1] &= 0xFF >> (-span % 8)
            bits.append(0)  # Parallel Consumer has one more byte than it needs
            plain += [
                magic + struct.pack(form.number, span) + bits
                for magic, form in PLAIN.items()
                if form.bits and span <= form.most
            ]
        shortest = min(plain, key=len)
        if len(shortest) <= ZSTD_LEAST:
            return shortest
        squeeze = zstandard.ZstdCompressor()
        packed = [PACKED[each[:1]] + squeeze.compress(each[1:]) for each in plain]
        return min([shortest, *packed], key=len)


def _inflate(data: bytes) -> bytes:
    # In small bites: a frame may be a bomb. What follows the frame raises.
    frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MOST).decompressobj()
    body = bytearray()
    for at in range(0, len(data), INFLATED_AT_ONCE):
        body += frame.decompress(data[at : at + INFLATED_AT_ONCE])
        if len(body) > BODY_BYTES_MOST:
            raise ValueError("more than any front of finished messages")
    if not frame.eof or frame.unused_data:
        raise ValueError("not one whole frame")
    return bytes(body)


def _read_bits(form: Form, body: bytes) -> Iterable[Range]:
    # Exactly as long as it is written: other bytes that begin alike must not become finished work.
    (span,) = struct.unpack(form.number, body[: form.width])
    bits = body[form.width :]
    if span < 0 or len(bits) != (span + 7) // 8 + 1:
        raise ValueError("the bits are not as many as it says")
    digits = f"{int.from_bytes(bits, 'little'):b}"[::-1]
    if "1" in digits[span:]:
        raise ValueError("bits are set behind the last offset")
    return [match.span() for match in islice(_RUN_OF_ONES.finditer(digits), RANGES_MOST)]


def _read_runs(form: Form, body: bytes) -> Iterable[Range]:
    if not body or len(body) > BODY_BYTES_MOST or len(body) % form.width:
        raise ValueError("no whole runs")
    runs: Sequence[int] = struct.unpack(f">{len(body) // form.width}{form.number[1]}", body)
    if min(runs) < 0:
        raise ValueError("a run of less than nothing")
    found: list[Range] = []
    at = 0
    for number, run in enumerate(runs[: 2 * RANGES_MOST]):
        if number % 2 and run:
            found.append((at, at + run))
        at += run
    return found
