"""Drains that were stopped or killed are found by their plans in a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_plan, a_status, changed, progress_at
from drainer.cli.options import parse_present
from drainer.cli.steering import found_as_json, running_page, state_of
from drainer.control.client import FoundDrain, left, left_known, request
from drainer.control.place import link_to, make_folder
from drainer.control.wire import About
from drainer.core.merge import Record
from drainer.engine.control import Pause
from drainer.errors import PlanRefused, Refused, UsageError
from drainer.insight.distribution import latency_from
from drainer.model.account import Event, EventKind
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.store.journal import Journal
from drainer.store.place import PLANS
from drainer.store.plan_file import PlanFile
from drainer.view.terminal import Terminal
from privileges import UNPRIVILEGED
from view.samples import Screen, plain

AT = "2026-11-23T20:08:58.000+00:00"
SOME, ALL_OF_IT = progress_at(40), progress_at(100)
PLAN = a_plan(100, updated=AT, claims={ALL: {0: SOME}})  # its tasks' state is not there to read
BEGUN = Event(AT, EventKind.BEGUN, "ana@db1")
WORDS = ("--engine", "spark", "--master", "local[2]", "--concurrency", "20")
MORE = "--engine spark --master 'local[2]' --concurrency 20"
RUN = Resuming(WORDS, ("--set api_token=…",), "spark", "20")
KILLED = changed(PLAN, history=(BEGUN,), resuming=RUN, share_done=0.4)
STOPPED = changed(PLAN, history=(BEGUN, replace(BEGUN, what=EventKind.ENDED)))
HALTED = changed(
    PLAN, history=(BEGUN, replace(BEGUN, what=EventKind.ENDED, details=("halted: no such doc",)))
)
UNDONE = changed(
    STOPPED, history=(replace(BEGUN, what=EventKind.UNDONE),), claims={ALL: {0: ALL_OF_IT}}
)
DONE = changed(STOPPED, claims={ALL: {0: ALL_OF_IT}})


def write(folder: Path, name: str, plan: OffsetPlan) -> PlanFile:
    file = PlanFile(folder / f"{name}.plan.json")
    file.write(plan)
    return file


def test_many_drains_fit_a_small_screen_the_most_urgent_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    states = ("stopped", "halted", "stopped", "killed") * 10
    plans = {"stopped": STOPPED, "halted": HALTED, "killed": changed(KILLED, resuming=Resuming())}
    for number, state in enumerate(states):
        write(tmp_path, f"{number:02}", plans[state])
    screen = Screen()
    Terminal(stdout=screen, stderr=screen, width=80).present(running_page(left_in(tmp_path)))
    lines = plain(screen).splitlines()
    assert len(lines) <= 24
    assert "and 38 others: `drainer plan show PLAN` has the way" in screen.getvalue()
    rows = [
        line for line in lines if "stopped  " in line or "halted  " in line or "killed  " in line
    ]
    assert len(rows) == 9
    assert "stopped" not in "".join(rows)
    assert lines[-1] == "and 31 more"


def test_the_share_of_a_killed_drain_is_the_last_in_its_journal(tmp_path: Path) -> None:
    file = write(tmp_path, "a", KILLED)
    file.start_journal(KILLED.terms.drain_id, KILLED.account.generation)
    for share in (0.45, None, 0.5, None):
        file.append(Record({0: progress_at(50)}, share_done=share))
    [found] = left_in(tmp_path)
    assert found_as_json(found)["done"] == 0.5
    [journal] = tmp_path.glob("*.journal-*")
    other = KILLED.account.generation + 1
    Journal(journal.with_name(f"a.plan.json.journal-{other}"), KILLED.terms.drain_id, 4, other)
    with pytest.raises(PlanRefused):
        file.load()
    [found] = left_in(tmp_path)
    assert found_as_json(found)["done"] == 0.4


def left_in(folder: Path) -> list[FoundDrain]:
    return [*left(sorted(folder.glob(PLANS)))]


def test_what_was_stopped_or_killed_is_listed_with_how_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, plan in (("a b", KILLED), ("b", STOPPED), ("c", DONE), ("d", HALTED)):
        write(tmp_path, name, plan)
    found = left_in(tmp_path)
    assert [state_of(each) for each in found] == ["killed", "stopped", "halted"]
    page = running_page(found)
    assert [way.value.split(" --")[0] for way in page.ways_on] == [
        "drainer resume 'a b.plan.json'",
        "drainer resume d.plan.json",
        "drainer resume b.plan.json",
    ]  # The one that was stopped on purpose is the least urgent.
    assert page.headline.text == "0 drains are running on this machine; 3 can be resumed"
    [way] = running_page(found[:1]).ways_on
    assert way.value == f"drainer resume 'a b.plan.json' {MORE}"
    assert "add --set api_token=… as before" in way.note
    killed, _, halted = map(found_as_json, found)
    assert (killed["topic"], killed["since"], killed["done"]) == ("orders", AT, 0.4)
    assert (killed["ended"], *halted["ended"]["details"]) == (None, "halted: no such doc")
    assert (killed["resume"], halted["resume"]) == (
        f"drainer resume 'a b.plan.json' {MORE}",
        "drainer resume d.plan.json",
    )


def test_an_undone_drain_comes_last_and_no_way_to_take_that_back_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    half_undone = changed(UNDONE, claims={ALL: {0: SOME}})
    for name, plan in (("a", half_undone), ("b", STOPPED)):
        write(tmp_path, name, plan)
    path = tmp_path / "c.plan.json"
    about = About(str(path), "orders", "indexer", "", "process", AT)
    runs = FoundDrain(path, about, a_status(), 0.2, 4_711)
    page = running_page([*left_in(tmp_path), runs])
    assert [way.value for way in page.ways_on] == ["drainer resume b.plan.json"]
    headline = "1 drain is running on this machine; 1 can be resumed; 1 was undone"
    assert page.headline.text == headline
    screen = Screen()
    Terminal(stdout=screen, stderr=screen, width=120).present(page)
    lines = plain(screen).splitlines()
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["b.plan.json", "stopped"],
        ["c.plan.json", "draining"],
        ["a.plan.json", "undone"],
    ]
    [note] = (line for line in lines if "was undone at" in line)
    assert note.endswith("; a resume commits again what is done")


@pytest.mark.parametrize(
    ("plan", "error", "hint"),
    [
        (HALTED, ", halted: no such doc", "To resume it: `drainer resume "),
        (KILLED, " was killed, or still runs elsewhere; its plan was last written at ", MORE),
        (UNDONE, "; a resume commits again what is done", "To resume it: `drainer resume "),
        (DONE, " ended at ", "Nothing is left to resume: see `drainer plan show "),
    ],
)
def test_a_request_to_a_drain_that_has_ended_says_how_it_ended(
    tmp_path: Path, plan: OffsetPlan, error: str, hint: str
) -> None:
    file = write(tmp_path, "a", plan)
    with pytest.raises(Refused) as raised:
        request(file.path, Pause())
    assert error in str(raised.value)
    assert hint in str(raised.value.hint)
    file.acquire()  # A process has the plan, but its socket is not there yet, or is another user's.
    with pytest.raises(Refused) as raised:
        request(file.path, Pause())
    assert "just begun" in str(raised.value.hint)
    file.release()


def test_a_drain_that_a_process_works_on_is_not_left(tmp_path: Path) -> None:
    file = write(tmp_path, "a", KILLED)
    file.acquire()
    assert left_in(tmp_path) == []
    (tmp_path / "b.plan.json").symlink_to(file.path)
    assert left_in(tmp_path) == []
    assert PlanFile(file.path).is_locked
    file.release()
    assert len(left_in(tmp_path)) == 2


def test_looking_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    file = write(tmp_path, "a", KILLED)
    lock = tmp_path / f".{file.path.name}.lock"
    lock.touch()  # as a killed process leaves it
    before = sorted(tmp_path.iterdir())
    assert len(left_in(tmp_path)) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_not_a_plan_and_what_others_could_have_written_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.plan.json").write_text("{}")
    (tmp_path / "b.plan.json").mkdir()
    os.mkfifo(tmp_path / "c.plan.json")
    (tmp_path / "d.plan.json").symlink_to("nowhere")
    write(tmp_path, "e", KILLED).path.chmod(0o666)
    write(tmp_path, "f", changed(KILLED, updated="0001-01-01T00:00:00+14:00"))
    if os.geteuid() == 0:
        os.chown(write(tmp_path, "g", KILLED).path, UNPRIVILEGED, UNPRIVILEGED)
    assert left_in(tmp_path) == []


def test_in_another_folder_a_plan_is_named_by_its_path_if_this_machine_remembers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, elsewhere = write(tmp_path, "far away", STOPPED), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def hint() -> str:
        with pytest.raises(PlanRefused, match="does not exist") as raised:
            parse_present(file.path.name)
        return raised.value.hint or ""

    assert hint().startswith("Run this in the drain's folder, or give the full path of the plan: ")
    link = link_to(file.path)
    make_folder(link.parent)
    link.symlink_to(file.path)
    assert hint().startswith(f"Name it by its full path: '{file.path}'. If the plan is lost, start")
    for folder in (elsewhere, tmp_path):
        monkeypatch.chdir(folder)
        assert [each.path for each in left_known() if each.path.name == file.path.name] == [
            file.path
        ], "ps lists it once"
    monkeypatch.chdir(elsewhere)
    with pytest.raises(Refused) as raised:
        request(Path(file.path.name), Pause())
    assert raised.value.hint == f"Name it by its full path: '{file.path}'."
    assert parse_present(str(file.path)) == file.path
    file.path.chmod(0o666)
    assert "full path: " not in hint(), "another user could have written it"
    link.unlink()


def test_a_misspelt_plan_is_answered_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "orders.indexer", DONE)
    circle = tmp_path / "order.circle.plan.json"
    circle.symlink_to(circle)  # Anybody can leave one in a folder that is shared.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    far = write(elsewhere, "payments.mailer", STOPPED)
    link = link_to(far.path)
    make_folder(link.parent)
    link.symlink_to(far.path)
    monkeypatch.chdir(tmp_path)
    for typed, meant in (
        ("orders.indexer.plan.jsn", "orders.indexer.plan.json"),
        ("./order.indexer.plan.json", "orders.indexer.plan.json"),
        (f"{tmp_path}/orders.indexer.json", f"{tmp_path}/orders.indexer.plan.json"),
        ("orders", "orders.indexer.plan.json"),
        ("indexer", "orders.indexer.plan.json"),
        ("payment.mailer.plan.json", str(far.path)),
    ):
        did_you_mean = f"Did you mean {meant}?"
        with pytest.raises(PlanRefused, match="does not exist") as missing:
            parse_present(typed)
        assert (missing.value.hint or "").startswith(f"{did_you_mean} If the plan is lost, start")
        with pytest.raises(Refused) as idle:
            request(Path(typed), Pause())
        assert idle.value.hint == did_you_mean
        with pytest.raises(UsageError) as unread:
            latency_from(Path(typed))
        assert unread.value.hint == did_you_mean
    with pytest.raises(PlanRefused) as unlike:
        parse_present("x")
    assert (unlike.value.hint or "").startswith("Run this in the drain's folder")
    link.unlink()
