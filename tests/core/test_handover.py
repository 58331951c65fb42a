"""The metadata of a commit: Parallel Consumer's format, read and written."""

from __future__ import annotations

import base64
import struct
import tracemalloc
from contextlib import suppress
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from drainer.core.handover import FORMS, METADATA_BYTES, RANGES_MOST, decode, encode
from drainer.core.progress import Range, join_ranges, ranges_of

# Written by Parallel Consumer 0.5.3.3 itself (OffsetSimultaneousEncoder): the committed offset, an
# x for each finished offset from there on, and the text by the name of the form in its source.
WRITTEN_BY_PARALLEL_CONSUMER = {
    (100, "oxxoxooox"): {
        "BitSet": "bAAJFgEA",
        "BitSetCompressed": "YSi1L/0AWCkAAAAJFgEA",
        "RunLength": "bgABAAIAAQABAAMAAQ==",
        "RunLengthCompressed": "Sii1L/0AWGEAAAABAAIAAQABAAMAAQ==",
        "BitSetV2": "bwAAAAkWAQA=",
        "BitSetV2Compressed": "cyi1L/0AWDkAAAAAAAkWAQA=",
        "RunLengthV2": "ZQAAAAEAAAACAAAAAQAAAAEAAAADAAAAAQ==",
        "RunLengthV2Compressed": "cCi1L/0AWMEAAAAAAAEAAAACAAAAAQAAAAEAAAADAAAAAQ==",
    },
    (7, "oxxxxxxx"): {  # the bits end with a byte
        "BitSet": "bAAI/gA=",
        "RunLength": "bgABAAc=",
        "BitSetV2": "bwAAAAj+AA==",
        "RunLengthV2": "ZQAAAAEAAAAH",
    },
    (0, "ooooooooooooooox"): {"BitSet": "bAAQAIAA", "BitSetV2": "bwAAABAAgAA="},
    (10, "xxox"): {
        "BitSet": "bAAECwA=",
        "RunLength": "bgAAAAIAAQAB",
        "BitSetV2Compressed": "cyi1L/0AWDEAAAAAAAQLAA==",
        "RunLengthV2": "ZQAAAAAAAAACAAAAAQAAAAE=",
    },
    (5, ""): {  # what it writes before anything above the committed offset is finished
        "BitSet": "bAAAAA==",
        "BitSetCompressed": "YSi1L/0AWBkAAAAAAA==",
        "RunLength": "bgAA",
        "RunLengthCompressed": "Sii1L/0AWBEAAAAA",
        "BitSetV2": "bwAAAAAA",
        "BitSetV2Compressed": "cyi1L/0AWCkAAAAAAAAA",
        "RunLengthV2": "ZQAAAAA=",
        "RunLengthV2Compressed": "cCi1L/0AWCEAAAAAAAA=",
    },
    (1000, "ox" * 300): {
        "BitSetCompressed": "YSi1L/0AWFUAACACWKoAAQCHgiE=",
        "RunLengthCompressed": "Sii1L/0AWE0AABAAAQEAq/Q7LA==",
        "BitSetV2Compressed": "cyi1L/0AWGUAADAAAAJYqgABAIcCLQ==",
        "RunLengthV2Compressed": "cCi1L/0AWF0AACAAAAABAQBZ2XdE",
    },
    (1000, "o" + "x" * 40_000): {
        "BitSetV2Compressed": "cyi1L/0AWH0AAEAAAJxB/v8BAAEAg9ODIg==",
        "RunLengthV2": "ZQAAAAEAAJxA",
        "RunLengthV2Compressed": "cCi1L/0AWEEAAAAAAAEAAJxA",
    },
}


def ranges_in(committed: int, pattern: str) -> tuple[Range, ...]:
    return ranges_of(committed + n for n, mark in enumerate(pattern) if mark == "x")


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def java_bit_set(committed: int, finished: tuple[Range, ...], number: str) -> bytes:
    """A body of bits, written one by one as java.util.BitSet keeps them."""
    span = finished[-1][1] - committed if finished else 0
    bits = bytearray(-(-span // 8) + 1)
    for first, end in finished:
        for offset in range(first, end):
            bits[(offset - committed) // 8] |= 1 << (offset - committed) % 8
    return struct.pack(number, span) + bits


def run_lengths(committed: int, finished: tuple[Range, ...], number: str) -> bytes:
    runs, at = [], committed
    for first, end in finished:
        runs += [first - at, end - first]
        at = end
    return b"".join(struct.pack(number, run) for run in runs or [0])


def in_every_form(committed: int, finished: tuple[Range, ...]) -> dict[bytes, str]:
    """The text of each form by its magic byte, by a path of its own."""
    texts = {}
    for plain, squeezed, write, number in (
        (b"o", b"s", java_bit_set, ">i"),
        (b"e", b"p", run_lengths, ">i"),
        (b"l", b"a", java_bit_set, ">h"),
        (b"n", b"J", run_lengths, ">h"),
    ):
        with suppress(struct.error):  # a number that the first version has no room for
            body = write(committed, finished, number)
            texts[plain] = packed(plain + body)
            texts[squeezed] = packed(squeezed + zstandard.compress(body))
    return texts


@st.composite
def fronts(draw: st.DrawFn, gap: int = 300) -> tuple[int, tuple[Range, ...]]:
    """A committed offset, and finished ranges from there on."""
    at = committed = draw(st.integers(0, 2**40))
    lengths = st.tuples(st.integers(1, gap), st.integers(1, gap))
    finished = []
    for left_out, run in draw(st.lists(lengths, max_size=40)):
        finished.append((at + left_out, at + left_out + run))
        at += left_out + run
    return committed, tuple(finished)


def naive_front(seed: int, ranges: int, longest: int) -> tuple[Range, ...]:
    chance = Random(seed)
    at, finished = 0, []
    for _ in range(ranges):
        at += chance.randint(1, longest)
        finished.append((at, at := at + chance.randint(1, longest)))
    return tuple(finished)


@pytest.mark.parametrize(
    ("committed", "pattern", "form", "text"),
    [
        pytest.param(committed, pattern, form, text, id=f"{form} of {pattern[:16]}")
        for (committed, pattern), texts in WRITTEN_BY_PARALLEL_CONSUMER.items()
        for form, text in texts.items()
    ],
)
def test_what_parallel_consumer_wrote_is_read(
    committed: int, pattern: str, form: str, text: str
) -> None:
    assert decode(committed, text) == ranges_in(committed, pattern)


@pytest.mark.parametrize(
    ("committed", "pattern", "smallest"),
    [
        (100, "oxxoxooox", "bAAJFgEA"),
        (7, "oxxxxxxx", "bAAI/gA="),
        (7, "oxxxxxxxx", "bgABAAg="),
        (0, "o" * 15 + "x", "bgAPAAE="),
        (1000, "o" + "x" * 40_000, "ZQAAAAEAAJxA"),
    ],
)
def test_what_is_written_is_what_parallel_consumer_writes(
    committed: int, pattern: str, smallest: str
) -> None:
    """Or as short, where two forms are."""
    text = encode(committed, ranges_in(committed, pattern))

    assert len(text) == len(smallest)
    assert text in in_every_form(committed, ranges_in(committed, pattern)).values()


@given(fronts())
def test_each_form_is_read(front: tuple[int, tuple[Range, ...]]) -> None:
    committed, finished = front

    for magic, text in in_every_form(committed, finished).items():
        assert decode(committed, text) == finished, magic


@given(fronts(gap=3) | fronts())
def test_what_was_written_is_read_and_is_the_shortest_of_the_forms(
    front: tuple[int, tuple[Range, ...]],
) -> None:
    committed, finished = front

    text = encode(committed, finished)

    assert decode(committed, text) == finished
    if finished:
        assert len(text) == min(map(len, in_every_form(committed, finished).values()))


def test_nothing_above_the_offset_needs_no_text() -> None:
    assert encode(10, ()) == ""
    assert encode(10, [(0, 5), (7, 10)]) == ""
    assert decode(10, "") == ()


def test_what_lies_below_the_offset_is_not_written() -> None:
    assert decode(10, encode(10, [(5, 12), (14, 15)])) == ((10, 12), (14, 15))


@pytest.mark.parametrize("bytes_most", [METADATA_BYTES, 1024, 64, 8])
@pytest.mark.parametrize(("ranges", "longest"), [(50_000, 2), (9_000, 60), (3_000, 100_000)])
def test_what_is_too_much_is_left_out_from_the_far_end(
    ranges: int, longest: int, bytes_most: int
) -> None:
    finished = naive_front(ranges + longest, ranges, longest)

    text = encode(0, finished, bytes_most)
    told = decode(0, text)

    assert told is not None
    assert len(text) <= bytes_most
    assert told == finished[: len(told)]
    assert len(told) < ranges
    a_range_of_long_runs = 12
    assert len(text) > bytes_most * 0.95 - a_range_of_long_runs, "what fits is told"


@pytest.mark.parametrize("bytes_most", [0, 1, 4, 7])
def test_no_room_is_no_text(bytes_most: int) -> None:
    assert encode(0, [(1, 2)], bytes_most) == ""


def test_a_long_front_of_few_ranges_takes_a_few_bytes() -> None:
    finished = ((1, 5_000_000), (5_000_001, 2**31 - 2))

    assert len(encode(0, finished)) < 40
    assert decode(0, encode(0, finished)) == finished


def test_what_java_can_not_count_is_left_out() -> None:
    assert decode(0, encode(0, [(1, 2), (5, 2**40), (2**41, 2**42)])) == ((1, 2), (5, 2**31 - 1))


@given(st.text(max_size=40))
def test_text_of_others_raises_nothing(text: str) -> None:
    decode(5, text)


@given(st.sampled_from(sorted(FORMS)), st.binary(max_size=80), st.booleans())
def test_bytes_of_others_raise_nothing(magic: bytes, body: bytes, squeezed: bool) -> None:
    found = decode(5, packed(magic + (zstandard.compress(body) if squeezed else body)))

    assert found is None or found == join_ranges(found)


@pytest.mark.parametrize(
    "text",
    [
        "hello, world",
        "owner-7",
        "bAAJFgE",  # the padding is gone
        "bAAJFgEA\n",
        "äöü",
        packed(b"\x01" + struct.pack(">q", 1_700_000_000_000)),  # Kafka Streams
        packed(b"L\0\1\1"),  # Parallel Consumer's byte array, which it doesn't read itself
        packed(b"old state of mine"),  # begins as a BitSet v2 of 1,818,501,235 bits
        packed(b"last one wins"),  # as a BitSet v1 of 24,947
        packed(b"o"),
        packed(b"o" + struct.pack(">i", -1) + b"\0"),
        packed(b"o" + struct.pack(">i", 9) + b"\x16\1"),  # a byte too few
        packed(b"o" + struct.pack(">i", 9) + b"\x16\1\0\0"),  # and one too many
        packed(b"o" + struct.pack(">i", 9) + b"\x16\3\0"),  # a bit behind the last
        packed(b"e"),
        packed(b"e\0\0\0"),
        packed(b"e" + struct.pack(">ii", 1, -5)),
        packed(b"s" + b"\x28\xb5\x2f\xfd garbage"),
        packed(b"s" + zstandard.compress(struct.pack(">i", 9) + b"\x16\1\0")[:-3]),
        packed(b"s" + zstandard.compress(struct.pack(">i", 9) + b"\x16\1\0") + b"more"),
    ],
)
def test_what_is_no_such_format_is_unknown(text: str) -> None:
    assert decode(100, text) is None


def test_a_bomb_is_unknown_and_does_not_fill_the_memory() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(90_000_000))
    for magic in (b"s", b"p", b"a", b"J"):
        text = packed(magic + bomb)
        assert len(text) <= METADATA_BYTES
        tracemalloc.start()
        found = decode(0, text)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found is None
        assert most < 10_000_000


def test_more_ranges_than_anyone_has_are_left_out_from_the_far_end() -> None:
    body = struct.pack(">i", 800_000) + b"\xaa" * 100_000 + b"\0"

    told = decode(0, packed(b"s" + zstandard.compress(body)))

    assert told is not None
    assert len(told) == RANGES_MOST
    assert told[:2] == ((1, 2), (3, 4))
