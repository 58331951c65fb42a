"""A version that this drainer does not know is refused by its number, and an older one is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from core.limit_samples import measured
from drainer.errors import DrainerError, Refused
from drainer.letters.receipts import read_receipt
from drainer.limits.file import LimitsFile
from drainer.message import Message
from drainer.model import formats, plan
from drainer.model.formats import JOURNAL, LETTER, LIMITS, RECEIPT, STATE, Format
from drainer.model.plan import OffsetPlan
from drainer.policy.dead_letter import read_letter
from drainer.spark.state.lease import LOCAL
from drainer.spark.state.state import Epoch, State
from drainer.store.journal import Journal, JournalHead, encode_line, read_journal
from drainer.store.plan_file import PlanFile
from drainer.version import __version__
from formats.golden import FOLDER, RELEASES, SPARK, records
from store.plans import PLAN, edited, put, signed


def newer(body: bytes, known: Format) -> bytes:
    name = str(known).encode()
    assert name in body
    return body.replace(name, f"{known.family}/99".encode())


def newer_record(of: Format) -> Message:
    found = next(each for each in records(RELEASES[-1]) if each.headers[0][0] == str(of))
    (_, value), *others = found.headers
    headers = [(f"{of.family}/99", value), *others]
    return Message(found.origin, found.offset, found.key, found.value, found.timestamp, headers)


def of_plan(folder: Path) -> None:
    OffsetPlan.decode(newer(PLAN.encode(), formats.PLAN))


def of_journal(folder: Path) -> None:
    path = folder / "plan.json.journal-1"
    Journal(path, "id").close()
    line = path.read_bytes()
    head = {**json.loads(line.partition(b" ")[2]), "format": "drainer-journal/99"}
    path.write_bytes(encode_line(head))
    read_journal(path)


def of_state(folder: Path) -> None:
    body = orjson.loads((FOLDER / RELEASES[-1] / SPARK).read_bytes())
    state = State.open(str(folder / "state"), body["drain_id"])
    assert state.begin_epoch(1, LOCAL)
    file = folder / "state" / body["drain_id"] / "epochs/1"
    epoch = json.loads(file.read_bytes().partition(b" ")[2])
    file.write_bytes(encode_line({**epoch, "format": "drainer-state/99"}))
    path = folder / "plan.json"
    path.write_bytes(signed(body | {"state": body["state"] | {"uri": state.uri}}))
    PlanFile(path).load()


def of_limits(folder: Path) -> None:
    file = LimitsFile(folder / "limits.json")
    file.write(measured())
    body = orjson.loads(file.path.read_bytes())
    file.path.write_bytes(orjson.dumps({**body, "drainer_limits": 99}))
    file.load()


@pytest.mark.parametrize(
    ("known", "read"),
    [
        (formats.PLAN, of_plan),
        (JOURNAL, of_journal),
        (STATE, of_state),
        (LETTER, lambda _: read_letter(newer_record(LETTER))),
        (RECEIPT, lambda _: read_receipt(newer_record(RECEIPT))),
        (LIMITS, of_limits),
    ],
    ids=lambda each: each.what if isinstance(each, Format) else "",
)
def test_a_newer_version_is_refused_by_its_number(
    known: Format, read: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(Refused) as refused:
        read(tmp_path)

    text = f"{known.what} format 99 is newer than this drainer {__version__} knows"
    assert f"{text} (up to {known.version})" in str(refused.value)
    assert (refused.value.hint or "").startswith("Install the newer drainer that wrote it.")


def test_an_older_version_that_is_not_read_any_more_is_refused_by_its_number() -> None:
    with pytest.raises(DrainerError, match=r"plan format 9 is older than .* \(from 10 on\)"):
        formats.PLAN.ensure_read("drainer-plan/9", Refused)


@pytest.mark.parametrize("name", ["drainer-plan", "drainer-plan/x", "other/10", None, 10])
def test_what_is_no_version_is_no_format(name: object) -> None:
    with pytest.raises(ValueError, match="is not a version of drainer-plan"):
        formats.PLAN.ensure_read(name, Refused)


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drainer after this one, which has a new version of the plan and still reads this one."""
    later = replace(formats.PLAN, version=formats.PLAN.version + 1, oldest=formats.PLAN.version)
    monkeypatch.setattr(plan, "PLAN", later)


def older(edit: Callable[[dict[str, Any]], object]) -> bytes:
    """A plan of the version before, after an edit of its JSON."""
    body = orjson.loads(edited(PLAN, edit))
    return signed({**body, "format": str(formats.PLAN)})


def test_a_plan_of_the_version_before_lacks_newer_fields_and_is_read(next_version: None) -> None:
    def lack(body: dict[str, Any]) -> None:
        del body["share_done"], body["payloads"]["times"]

    found = OffsetPlan.decode(older(lack))

    assert found.account == replace(PLAN.account, share_done=None)
    assert found.terms.payloads == replace(PLAN.terms.payloads, times=None)
    assert found.as_json()["format"] == f"drainer-plan/{formats.PLAN.version + 1}"


@pytest.mark.parametrize("path", [("new",), ("failures", "new"), ("partitions", "0", "new")])
def test_a_plan_of_the_version_before_has_no_other_fields(
    next_version: None, path: tuple[str, ...]
) -> None:
    with pytest.raises(Refused, match="other fields than drainer writes"):
        OffsetPlan.decode(older(lambda body: put(body, path, 1)))


def test_what_is_written_now_names_its_version() -> None:
    assert JournalHead("id", 0, 0).format == str(JOURNAL)
    assert Epoch("driver", LOCAL).format == str(STATE)


@pytest.mark.parametrize("release", RELEASES)
def test_what_no_version_is_written_in_is_of_the_first(release: str) -> None:
    """Journals and states of drainer 0.1 do not name one."""
    (journal,) = (FOLDER / release).glob("process.json.journal-*")
    head = read_journal(journal).head
    assert head is not None
    assert head.format == "drainer-journal/1"
