"""The journal: appended records survive a kill, a torn one is left out, and reading changes
nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plans import END, PLAN, START, mode_of, progress

from drainer.core.plan import ALL, OffsetPlan
from drainer.core.progress import Partial, Progress
from drainer.errors import PlanRefused
from drainer.store.journal import Journal, read_journal
from drainer.store.plan_file import PlanFile

RECORDS: Sequence[dict[int, Progress]] = (
    {0: progress(120, (122, 123), partial={124: Partial(3, 9, 0b001)}, done=22)},
    {0: progress(125, partial={127: Partial(2, 8, 0b01)}, done=27), 2: progress(3, done=3)},
    {2: progress(9, (12, 20), done=17)},
    {0: progress(150, done=50)},
)


def write_journal(
    path: Path, records: Sequence[dict[int, Progress]] = RECORDS, drain_id: str = PLAN.drain_id
) -> bytes:
    journal = Journal(path, drain_id)
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def merged(records: Sequence[dict[int, Progress]], plan: OffsetPlan = PLAN) -> OffsetPlan:
    for record in records:
        plan = plan.merge(record)
    return plan


def finished(plan: OffsetPlan) -> set[tuple[int, int]]:
    """The messages that a plan says are finished, read naively."""
    return {
        (number, offset)
        for number, found in plan.claims[ALL].items()
        for offset in range(plan.partitions[number].start, plan.partitions[number].end)
        if offset < found.watermark or any(a <= offset < b for a, b in found.finished)
    }


@pytest.fixture
def file(tmp_path: Path) -> PlanFile:
    plan_file = PlanFile(tmp_path / "orders.plan.json")
    plan_file.write(PLAN)
    return plan_file


def journal_path(file: PlanFile, generation: int = PLAN.generation) -> Path:
    return file.path.with_name(f"{file.path.name}.journal-{generation}")


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    write_journal(tmp_path / "j")
    content = read_journal(tmp_path / "j")

    assert content.records == RECORDS
    assert (content.drain_id, content.torn) == (PLAN.drain_id, False)


def test_each_record_is_there_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "d")
    for number, record in enumerate(RECORDS, start=1):
        journal.append(record)
        assert len(read_journal(tmp_path / "j").records) == number
    journal.close()


def test_a_journal_is_nobody_elses(tmp_path: Path) -> None:
    write_journal(tmp_path / "j")

    assert mode_of(tmp_path / "j") == 0o600


def test_a_new_journal_empties_what_was_there(tmp_path: Path) -> None:
    write_journal(tmp_path / "j")
    write_journal(tmp_path / "j", RECORDS[:1], drain_id="another")

    assert read_journal(tmp_path / "j").drain_id == "another"
    assert read_journal(tmp_path / "j").records == RECORDS[:1]


def test_a_record_torn_at_any_byte_loses_only_itself(file: PlanFile) -> None:
    path = journal_path(file)
    whole = write_journal(path)
    last = whole[:-1].rindex(b"\n") + 1

    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        content = read_journal(path)
        assert content.records == RECORDS[:-1], f"cut at {cut - last}"
        assert content.torn == (cut > last)
        loaded = file.load()
        assert (loaded.journal_records, loaded.journal_torn) == (3, cut > last)
        assert loaded.plan == merged(RECORDS[:-1])


def test_a_journal_cut_at_any_byte_keeps_the_records_before(tmp_path: Path) -> None:
    whole = write_journal(tmp_path / "j")
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]

    for cut in range(len(whole)):
        (tmp_path / "j").write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends)
        content = read_journal(tmp_path / "j")
        assert len(content.records) == max(0, complete - 1)
        assert content.drain_id == (PLAN.drain_id if complete else None)


def test_an_empty_journal_is_none(file: PlanFile) -> None:
    journal_path(file).write_bytes(b"")

    loaded = file.load()

    assert loaded.plan == PLAN
    assert (loaded.journal_records, loaded.journal_torn) == (0, False)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 512, b"nonsense\n", b"00000000 {}\n", b"\n", b"\r\n", b"\xff\xfe\n", b" \n"],
    ids=["zeros", "words", "wrong checksum", "empty line", "crlf", "bytes", "space"],
)
def test_garbage_ends_the_reading_there(garbage: bytes, file: PlanFile) -> None:
    path = journal_path(file)
    lines = write_journal(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], garbage, *lines[3:]]))

    loaded = file.load()

    assert loaded.plan == merged(RECORDS[:2])
    assert loaded.journal_torn


def spoil(lines: list[bytes], kind: str, at: int, byte: int) -> bytes:
    number = at % len(lines)
    if kind == "drop a line":
        del lines[number]
    elif kind == "repeat a line":
        lines.insert(number, lines[byte % len(lines)])
    elif kind == "swap lines":
        other = byte % len(lines)
        lines[number], lines[other] = lines[other], lines[number]
    data = b"".join(lines)
    at %= len(data)
    if kind == "change a byte":
        data = data[:at] + bytes([byte]) + data[at + 1 :]
    elif kind == "drop a byte":
        data = data[:at] + data[at + 1 :]
    elif kind == "cut":
        data = data[:at]
    return data


@given(
    kind=st.sampled_from(
        ["change a byte", "drop a byte", "cut", "drop a line", "repeat a line", "swap lines"]
    ),
    at=st.integers(0, 5000),
    byte=st.integers(0, 255),
)
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(kind="drop a line", at=0, byte=0)
@example(kind="repeat a line", at=2, byte=0)
@example(kind="swap lines", at=0, byte=1)
def test_a_spoilt_journal_never_claims_what_was_not_written(
    kind: str, at: int, byte: int, file: PlanFile
) -> None:
    path = journal_path(file)
    lines = write_journal(path).splitlines(keepends=True)
    path.write_bytes(spoil(lines, kind, at, byte))
    try:
        loaded = file.load()
    except PlanRefused:
        return  # as good an answer as any
    assert finished(PLAN) <= finished(loaded.plan) <= finished(merged(RECORDS))


def test_a_journal_that_can_not_be_read_is_refused(file: PlanFile) -> None:
    journal_path(file).mkdir()

    with pytest.raises(PlanRefused, match="journal"):
        file.load()


def test_a_journal_without_its_plan_is_refused(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "orders.plan.json")
    write_journal(journal_path(file))

    with pytest.raises(PlanRefused, match="there is no plan at") as caught:
        file.load()

    assert "drainer run" in (caught.value.hint or "")


def test_reading_twice_changes_nothing(file: PlanFile) -> None:
    write_journal(journal_path(file))
    before = {path.name: path.read_bytes() for path in file.path.parent.iterdir()}

    assert file.load() == file.load()
    assert {path.name: path.read_bytes() for path in file.path.parent.iterdir()} == before


def test_a_journal_that_the_plan_has_folded_in_already_changes_nothing(file: PlanFile) -> None:
    """The process ended between writing the plan and beginning the next journal."""
    write_journal(journal_path(file))
    once = file.load().plan
    file.write(once)
    assert journal_path(file).exists()

    assert file.load().plan == once


def test_an_older_journal_is_ignored_and_goes_with_the_next_plan(file: PlanFile) -> None:
    write_journal(journal_path(file, PLAN.generation - 1))

    loaded = file.load()

    assert (loaded.plan, loaded.journal_records) == (PLAN, 0)
    file.write(PLAN)
    assert [path.name for path in file.path.parent.iterdir()] == ["orders.plan.json"]


def test_two_generations_are_merged_in_their_order(tmp_path: Path) -> None:
    """The process ended while the next plan was being written. 9 comes before 10."""
    file = PlanFile(tmp_path / "orders.plan.json")
    plan = OffsetPlan.decode(PLAN.encode())
    object.__setattr__(plan, "generation", 9)
    file.write(plan)
    write_journal(journal_path(file, 9), RECORDS[:2])
    write_journal(journal_path(file, 10), RECORDS[2:])

    loaded = file.load()

    assert loaded.journal_records == 4
    assert loaded.plan == merged(RECORDS, plan)
    assert loaded.plan.claims[ALL][0].messages == RECORDS[3][0].messages
    assert loaded.written == plan


def test_a_torn_older_generation_does_not_hide_the_newer(file: PlanFile) -> None:
    path = journal_path(file)
    path.write_bytes(write_journal(path, RECORDS[:2])[:-5])
    write_journal(journal_path(file, PLAN.generation + 1), RECORDS[3:])

    loaded = file.load()

    assert loaded.journal_torn
    assert loaded.plan == merged([RECORDS[0], RECORDS[3]])


def test_the_journal_of_another_drain_is_ignored(file: PlanFile) -> None:
    write_journal(journal_path(file), drain_id="20250101-000000-000000")

    loaded = file.load()

    assert (loaded.plan, loaded.journal_records) == (PLAN, 0)


def test_a_record_past_the_end_of_the_backlog_is_refused(file: PlanFile) -> None:
    write_journal(journal_path(file), [{0: progress(END + 1, done=101)}])

    with pytest.raises(PlanRefused, match="watermark 201 is outside"):
        file.load()


def test_a_record_of_a_partition_that_the_plan_has_not_is_no_crash(file: PlanFile) -> None:
    write_journal(journal_path(file), [{7: progress(START, done=0)}])
    with suppress(PlanRefused):
        assert file.load().plan == PLAN


@pytest.mark.parametrize(
    "name", ["journal-x", "journal-7.bak", "journal-", "journal--1", "journal"]
)
def test_other_files_beside_the_plan_are_left_alone(name: str, file: PlanFile) -> None:
    other = file.path.with_name(f"{file.path.name}.{name}")
    other.write_text("mine")

    assert file.load().plan == PLAN
    file.remove_journals()
    assert other.read_text() == "mine"
