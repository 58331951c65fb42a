"""The journal: appended records survive a kill, a torn one is left out, and reading changes
nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plans import END, PLAN, START, mode_of, progress

from drainer.core.merge import Record
from drainer.core.plan import ALL, OffsetPlan
from drainer.core.progress import Partial, Progress
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.store import plan_file
from drainer.store.journal import Journal, JournalContent, read_journal
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


def changes(content: JournalContent) -> tuple[Mapping[int, Progress], ...]:
    return tuple(record.changes for record in content.records)


def parked(content: JournalContent) -> tuple[str, ...]:
    return tuple(lane for record in content.records for lane in record.parked)


def drain_of(content: JournalContent) -> str | None:
    return None if content.head is None else content.head.drain_id


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
    made = PlanFile(tmp_path / "orders.plan.json")
    made.write(PLAN)
    return made


def journal_path(file: PlanFile, generation: int = PLAN.generation) -> Path:
    return file.path.with_name(f"{file.path.name}.journal-{generation}")


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    write_journal(tmp_path / "j")
    content = read_journal(tmp_path / "j")

    assert changes(content) == RECORDS
    assert (drain_of(content), content.torn) == (PLAN.drain_id, False)


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

    assert drain_of(read_journal(tmp_path / "j")) == "another"
    assert changes(read_journal(tmp_path / "j")) == RECORDS[:1]


def test_a_record_torn_at_any_byte_loses_only_itself(file: PlanFile) -> None:
    path = journal_path(file)
    whole = write_journal(path)
    last = whole[:-1].rindex(b"\n") + 1

    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        content = read_journal(path)
        assert changes(content) == RECORDS[:-1], f"cut at {cut - last}"
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
        assert drain_of(content) == (PLAN.drain_id if complete else None)


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


def test_a_drain_that_writes_its_plan_while_it_is_read_hides_nothing(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody looks at the plan of a running drain, and a journal goes as it is to be read."""
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(RECORDS[0])
    running = PlanFile(file.path)
    read = read_journal

    def save_first(path: Path, look: Callable[[Path], bytes]) -> JournalContent:
        monkeypatch.setattr(plan_file, "read_journal", read)
        file.start_journal(PLAN.drain_id, PLAN.generation + 1)
        running.write(replace(merged(RECORDS[:1]), generation=PLAN.generation + 1))
        file.append(RECORDS[1])
        return read(path, look)

    monkeypatch.setattr(plan_file, "read_journal", save_first)
    loaded = file.load()
    file.release()

    assert loaded.plan.claims == merged(RECORDS[:2]).claims
    assert not loaded.journal_torn


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


# After a loss of power: any part of what was not synced may be gone.


def chain(file: PlanFile, *batches: Sequence[dict[int, Progress]]) -> list[Path]:
    """Journals as a running drain writes them, one for each batch, with no plan in between."""
    for generation, records in enumerate(batches, PLAN.generation):
        file.start_journal(PLAN.drain_id, generation)
        for record in records:
            file.append(record)
    file.release()
    return [journal_path(file, PLAN.generation + n) for n in range(len(batches))]


def test_a_journal_whose_predecessor_is_whole_is_taken(file: PlanFile) -> None:
    chain(file, RECORDS[:2], RECORDS[2:3], RECORDS[3:])

    loaded = file.load()

    assert (loaded.journal_records, loaded.journal_torn) == (4, False)
    assert loaded.plan == merged(RECORDS)
    assert loaded.last_generation == PLAN.generation + 2


def test_a_journal_whose_predecessor_lost_its_end_is_left_out(file: PlanFile) -> None:
    """It may tell of a sub-message whose forerunner in the lane was in what is lost."""
    older, _ = chain(file, RECORDS[:2], RECORDS[2:])
    whole = older.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1

    for cut in range(last, len(whole)):
        older.write_bytes(whole[:cut])
        loaded = file.load()
        assert loaded.plan == merged(RECORDS[:1]), f"cut at {cut - last}"
        assert (loaded.journal_records, loaded.journal_torn) == (1, True)


def test_a_journal_whose_predecessor_is_gone_is_left_out(file: PlanFile) -> None:
    older, _, _ = chain(file, RECORDS[:2], RECORDS[2:3], RECORDS[3:])
    older.unlink()

    loaded = file.load()

    assert (loaded.plan, loaded.journal_records, loaded.journal_torn) == (PLAN, 0, True)


def test_nothing_is_taken_from_behind_a_lost_record(file: PlanFile) -> None:
    _, middle, _ = chain(file, RECORDS[:1], RECORDS[1:3], RECORDS[3:])
    middle.write_bytes(middle.read_bytes()[:-1])

    assert file.load().plan == merged(RECORDS[:2])


def test_a_predecessor_that_had_nothing_to_lose_may_be_gone(file: PlanFile) -> None:
    older, _ = chain(file, [], RECORDS)
    older.unlink()

    assert file.load().plan == merged(RECORDS)


@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    kept=st.lists(st.integers(0, 2000) | st.none(), min_size=4, max_size=4),
)
@settings(
    max_examples=500,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(sizes=[2, 2], kept=[300, 2000, 0, 0])
def test_whatever_is_lost_what_is_left_is_what_was_true_at_one_moment(
    sizes: list[int], kept: list[int | None], file: PlanFile
) -> None:
    """``kept`` bytes of each journal reached the disk; None for a file without even its name."""
    file.remove_journals()
    rest = iter(RECORDS)
    batches = [list(islice(rest, size)) for size in sizes]
    for path, size in zip(chain(file, *batches), kept, strict=False):
        if size is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:size])

    moments = [merged(RECORDS[:count]) for count in range(len(RECORDS) + 1)]
    assert file.load().plan in moments


def test_a_journal_that_could_not_be_begun_breaks_no_chain(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before goes on in its place."""
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(RECORDS[0])
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", no_space)
        with pytest.raises(PlanNotWritten):
            file.start_journal(PLAN.drain_id, PLAN.generation + 1)
    file.append(RECORDS[1])
    file.start_journal(PLAN.drain_id, PLAN.generation + 2)
    file.append(RECORDS[2])
    file.release()

    assert file.load().plan == merged(RECORDS[:3])


def no_space(descriptor: int, data: bytes) -> int:
    raise OSError(28, "No space left on device")


def test_what_the_disk_did_not_take_goes_before_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next would be there without it, once there is room again."""
    journal = Journal(tmp_path / "j", PLAN.drain_id)
    journal.append(RECORDS[0])
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(PlanNotWritten):
            journal.append(RECORDS[1])
        broken.setattr(os, "write", no_space)
        with pytest.raises(PlanNotWritten):
            journal.append(RECORDS[2])
    assert changes(read_journal(tmp_path / "j")) == RECORDS[:1]

    journal.append(RECORDS[3])
    journal.close()

    assert changes(read_journal(tmp_path / "j")) == RECORDS


def test_a_torn_older_generation_does_not_hide_the_newer(file: PlanFile) -> None:
    """As long as the newer does not say that it builds on it."""
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


# --- lanes that were parked ---

PARKED: tuple[list[str], ...] = (
    ["'a'"],
    [],
    ["'b'", "(1, b'c')"],
    ["'\\ud800 \n'"],
)  # with each of the records


def write_parked(path: Path) -> bytes:
    journal = Journal(path, PLAN.drain_id)
    for record, lanes in zip(RECORDS, PARKED, strict=True):
        journal.append(record, lanes)
    journal.close()
    return path.read_bytes()


def test_parked_lanes_are_read_with_what_finished(file: PlanFile) -> None:
    write_parked(journal_path(file))
    content = read_journal(journal_path(file))
    assert changes(content) == RECORDS
    assert parked(content) == tuple(lane for lanes in PARKED for lane in lanes)
    assert file.load().plan.parked == tuple(sorted({*PLAN.parked, *parked(content)}))
    assert file.load().written.parked == PLAN.parked


def test_a_dead_letter_and_the_lane_parked_behind_it_are_lost_together_or_not(
    file: PlanFile,
) -> None:
    """The dead letter without its lane would let what is behind it go."""
    whole = write_parked(journal_path(file))
    for cut in range(len(whole)):
        journal_path(file).write_bytes(whole[:cut])
        content = read_journal(journal_path(file))
        count = len(content.records)
        assert changes(content) == RECORDS[:count]
        assert parked(content) == tuple(lane for lanes in PARKED[:count] for lane in lanes)


@pytest.mark.parametrize("lanes", ["'a'", {"'a'": 1}, [1], 7], ids=repr)
def test_parked_lanes_that_are_no_list_of_texts_end_the_reading(lanes: Any, file: PlanFile) -> None:
    journal = Journal(journal_path(file), PLAN.drain_id)
    journal.append(RECORDS[0], ["'a'"])
    journal.append(RECORDS[1], lanes)
    journal.close()
    content = read_journal(journal_path(file))
    assert (content.records, content.torn) == ((Record(RECORDS[0], ("'a'",)),), True)


def test_lanes_parked_in_a_journal_that_is_left_out_are_left_out(file: PlanFile) -> None:
    write_parked(journal_path(file))
    later = Journal(journal_path(file, PLAN.generation + 1), PLAN.drain_id, follows=9)
    later.append({2: progress(40, done=40)}, ["'later'"])
    later.close()
    loaded = file.load()
    assert loaded.journal_torn
    assert "'later'" not in loaded.plan.parked
    assert "'b'" in loaded.plan.parked


def test_lanes_that_the_plan_let_go_since_do_not_come_back(file: PlanFile) -> None:
    write_parked(journal_path(file))
    going_on = replace(file.load().plan, generation=PLAN.generation + 1, parked=())
    file.write(going_on)
    assert file.load().plan.parked == ()


def test_what_a_full_disk_did_not_take_of_parked_lanes_goes_first_the_next_time(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(journal_path(file), PLAN.drain_id)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: 0)
        with pytest.raises(PlanNotWritten):
            journal.append(RECORDS[0], ["'a'"])
    journal.append(RECORDS[1], ["'b'"])
    journal.close()
    assert parked(read_journal(journal_path(file))) == ("'a'", "'b'")
