"""The journal: appended records survive a kill, a torn one is left out, and reading changes
nothing."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from builders import changed
from core.messages import is_finished
from drainer.core.merge import Record
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.model.account import Event, EventKind
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Partial
from drainer.store.journal import Journal, read_journal
from drainer.store.plan_file import PlanFile
from store.plans import END, PLAN, START, mode_of, progress

RECORDS: Sequence[Record] = (
    Record({0: progress(120, (122, 123), partial={124: Partial(3, 9, 0b001)}, done=22)}, ("'a'",)),
    Record({0: progress(125, partial={127: Partial(2, 8, 0b01)}, done=27), 2: progress(3, done=3)}),
    Record({2: progress(9, (12, 20), done=17)}, ("'b'", "(1, b'c')")),
    Record({0: progress(150, done=50)}, ("'\\ud800 \n'",)),
)

LAW = settings(
    max_examples=settings().max_examples,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def append(journal: Journal | PlanFile, records: Sequence[Record]) -> None:
    for record in records:
        journal.append(record)


def write_journal(
    path: Path, records: Sequence[Record] = RECORDS, drain_id: str = PLAN.terms.drain_id
) -> bytes:
    journal = Journal(path, drain_id)
    append(journal, records)
    journal.close()
    return path.read_bytes()


def merged(records: Sequence[Record], plan: OffsetPlan = PLAN) -> OffsetPlan:
    for record in records:
        plan = OffsetPlan(plan.terms, plan.account.merge(record.changes, record.parked))
    return plan


def finished(plan: OffsetPlan) -> set[tuple[int, int]]:
    """The messages that are finished by a plan, read naively."""
    return {
        (number, offset)
        for number, found in plan.account.claims[ALL].items()
        for offset in range(
            plan.account.partitions[number].start, plan.account.partitions[number].end
        )
        if is_finished(found, offset)
    }


@pytest.fixture
def file(tmp_path: Path) -> PlanFile:
    made = PlanFile(tmp_path / "orders.plan.json")
    made.write(PLAN)
    return made


def journal_path(file: PlanFile, generation: int = PLAN.account.generation) -> Path:
    return file.path.with_name(f"{file.path.name}.journal-{generation}")


def test_each_record_is_there_as_soon_as_it_is_appended_and_is_the_users_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j"
    write_journal(path, RECORDS[:1], "another drain, whose journal is emptied")
    journal = Journal(path, PLAN.terms.drain_id)
    for number in range(len(RECORDS)):
        append(journal, RECORDS[number : number + 1])
        assert read_journal(path).records == RECORDS[: number + 1]
    journal.close()
    content = read_journal(path)
    assert content.head is not None
    assert (content.head.drain_id, content.torn) == (PLAN.terms.drain_id, False)
    assert mode_of(path) == 0o600


def spoil(lines: list[bytes], kind: str, at: int, byte: int) -> bytes:
    number = at % len(lines)
    if kind == "drop a line":
        del lines[number]
    elif kind == "repeat a line":
        lines.insert(number, lines[byte % len(lines)])
    elif kind == "swap lines":
        other = byte % len(lines)
        lines[number], lines[other] = lines[other], lines[number]
    elif kind == "insert garbage":
        lines.insert(number, [b"\x00" * 512, b"nonsense\n", b"00000000 {}\n", b"\r\n"][byte % 4])
    data = b"".join(lines)
    at %= len(data)
    if kind == "change a byte":
        data = data[:at] + bytes([byte]) + data[at + 1 :]
    elif kind == "drop a byte":
        data = data[:at] + data[at + 1 :]
    elif kind == "cut":
        data = data[:at]
    return data


KINDS = ["change a byte", "drop a byte", "cut", "insert garbage"]
KINDS += ["drop a line", "repeat a line", "swap lines"]


@given(kind=st.sampled_from(KINDS), at=st.integers(0, 5000), byte=st.integers(0, 255))
@LAW
@example(kind="change a byte", at=107, byte=ord("9"))  # of the first record's watermark
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
    assert file.load() == loaded, "reading changes nothing"


RUNNING = changed(PLAN, history=(Event("2026-11-24T18:00:00Z", EventKind.BEGUN, "ana@db1"),))


@pytest.mark.parametrize(
    ("history", "torn"), [(RUNNING.account.history, True), ((), False)], ids=["running", "ended"]
)
def test_a_journal_that_is_missing_is_noticed_where_one_belongs_to_the_plan(
    file: PlanFile, history: tuple[Event, ...], torn: bool
) -> None:
    ended = Event("2026-11-24T18:00:09Z", EventKind.ENDED, "ana@db1")
    file.write(changed(PLAN, history=history or (*RUNNING.account.history, ended)))
    assert bool(file.load().warnings) == torn
    journal_path(file).write_bytes(b"")  # as a crash of the machine may leave it
    assert bool(file.load().warnings) == torn
    write_journal(journal_path(file))
    assert not file.load().warnings


def test_what_is_behind_damage_in_a_journal_is_counted_as_repeated(file: PlanFile) -> None:
    head, first, spoilt, *rest = write_journal(journal_path(file)).splitlines(keepends=True)
    journal_path(file).write_bytes(b"".join((head, first, spoilt[:-9] + b"\n", *rest)))
    loaded = file.load()
    assert loaded.plan == merged(RECORDS[:1])
    missing = (
        merged(RECORDS).account.counts()[1].finished - loaded.plan.account.counts()[1].finished
    )
    assert loaded.left_out == missing > 0
    assert f"{missing} sub-messages at least" in loaded.warnings[0]


# After a loss of power: any part of what was not synced may be gone.


def chain(file: PlanFile, *batches: Sequence[Record]) -> list[Path]:
    """Journals as a running drain writes them, one for each batch, with no plan in between."""
    for generation, records in enumerate(batches, PLAN.account.generation):
        file.start_journal(PLAN.terms.drain_id, generation)
        append(file, records)
    file.release()
    return [journal_path(file, PLAN.account.generation + n) for n in range(len(batches))]


@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    kept=st.lists(st.integers(0, 2000) | st.none(), min_size=4, max_size=4),
)
@LAW
@example(sizes=[2, 2], kept=[300, 2000, 0, 0])
@example(sizes=[2, 1, 1], kept=[None, 2000, 2000, 0])
def test_whatever_is_lost_what_is_left_is_what_was_true_at_one_moment(
    sizes: list[int], kept: list[int | None], file: PlanFile
) -> None:
    """``kept`` bytes of each journal reached the disk; None for a file without even its name.

    A record may be of a sub-message whose forerunner in the lane was in what is lost.
    """
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


# What does not fit.


def test_generations_are_merged_by_their_number(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "orders.plan.json")
    plan = changed(PLAN, generation=9)
    file.write(plan)
    write_journal(journal_path(file, 8), RECORDS[3:])  # the plan has it
    write_journal(journal_path(file, 10), RECORDS[2:])
    write_journal(journal_path(file, 9), RECORDS[:2])

    assert file.load().plan == merged(RECORDS, plan)
    assert file.load().records == 4


def test_what_the_plan_has_taken_in_is_not_counted_twice_nor_comes_back(file: PlanFile) -> None:
    """The process ended between writing the plan and beginning the next journal."""
    write_journal(journal_path(file))
    once = file.load().plan
    file.write(once)
    assert file.load().plan == once
    file.write(changed(once, generation=once.account.generation + 1, parked=()))
    assert file.load().plan.account.parked == (), "a plan may let lanes go"
    assert [path.name for path in file.path.parent.iterdir()] == ["orders.plan.json"]


def test_the_journal_of_another_drain_is_ignored(file: PlanFile) -> None:
    write_journal(journal_path(file), drain_id="20250101-000000-000000")

    assert (file.load().plan, file.load().records) == (PLAN, 0)


def test_a_record_that_the_plan_can_not_have_is_refused(file: PlanFile) -> None:
    write_journal(journal_path(file), [Record({0: progress(END + 1, done=101)})])
    with pytest.raises(PlanRefused, match="watermark 201 is outside"):
        file.load()
    write_journal(journal_path(file), [Record({7: progress(START, done=0)})])
    with suppress(PlanRefused):
        assert file.load().plan == PLAN
    write_journal(journal_path(file), [RECORDS[0], Record({}, "'a'")])  # type: ignore[arg-type]
    assert (file.load().records, file.load().torn) == (1, True)


def test_a_journal_that_can_not_be_read_is_refused(file: PlanFile) -> None:
    journal_path(file).mkdir()

    with pytest.raises(PlanRefused, match="journal"):
        file.load()


def test_other_files_beside_the_plan_are_left_alone(file: PlanFile) -> None:
    names = ("journal-x", "journal-7.bak", "journal-", "journal--1", "journal")
    others = [file.path.with_name(f"{file.path.name}.{name}") for name in names]
    for other in others:
        other.write_text("mine")

    assert file.load().plan == PLAN
    file.remove_journals()
    assert [other.read_text() for other in others] == ["mine"] * len(others)


# A full disk.


def test_a_limit_of_the_size_of_files_is_named_with_its_way_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", PLAN.terms.drain_id)
    append(journal, RECORDS[:1])
    size, before = (tmp_path / "j").stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
        with pytest.raises(PlanNotWritten) as raised:
            append(journal, RECORDS[1:2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert "ulimit -f" in str(raised.value.hint)
    append(journal, RECORDS[2:3])
    journal.close()
    assert read_journal(tmp_path / "j").records == RECORDS[:3]
