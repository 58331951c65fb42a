"""Plans to write and read, and ways to spoil their files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from builders import a_partition, a_plan, changed, counts, progress_at
from drainer.model.account import ParkedLane, ParkedLanes
from drainer.model.claims import ALL
from drainer.model.latency import Latency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Partial, Progress
from drainer.model.settings import AfterDead, FailureSettings, Limit, OnFailure
from drainer.model.terms import LetterFilter, PayloadSettings, RedriveSettings, TimeRange, Unkeyed
from drainer.model.unhandled import Unhandled

START, END = 100, 200


def progress(
    watermark: int,
    *finished: tuple[int, int],
    partial: Mapping[int, Partial] | None = None,
    done: int | None = None,
) -> Progress:
    """Progress with counts that are conserved."""
    count = watermark - START if done is None else done
    return progress_at(
        watermark,
        finished=finished,
        partial=partial or {},
        messages=counts(done=count, pending=2),
        sub_messages=counts(done=2 * count - 3, dead=1, skipped=2, pending=5),
    )


PLAN = a_plan(
    generation=7,
    client_config="/etc/drainer/client.properties",
    partitions={
        0: a_partition(START, END, prior=START, committed=120, leader_epoch=3, lost=((105, 107),)),
        2: a_partition(0, 50),
    },
    claims={
        ALL: {
            0: progress(
                120, (125, 130), (140, 141), partial={131: Partial(5, 0xDEADBEEF, 0b01101)}
            ),
            2: progress_at(0),
        }
    },
    failures=FailureSettings(
        retries=3,
        on_failure=OnFailure.DEAD_LETTER,
        after_dead=AfterDead.PARK,
        dead_letter_topic="orders.billing.dead",
        max_failures=Limit(count=100),
        rate=250.5,
        skip=("payload.kind == 'set_email'",),
    ),
    parked=("'doc-17'", "(b'eu', 4)"),
    parked_lanes=ParkedLanes(2, (ParkedLane("'doc-17'", "orders/0/118[2]", "ValueError: no"),)),
    redrive=RedriveSettings(LetterFilter(reasons=("timeout",), errors=("refused",)), 2),
    latency=Latency.of(4_711, 0.0105, [n / 5_000 for n in range(101)]),
    handler_code="sha256:0123",
    options={"topic": "wide"},
    payloads=PayloadSettings(
        *("documents", ("payload.id", "payload.owner"), "payload.kind == 'drop'"),
        Unkeyed.ONE_LANE,
        *("avro", "raw", "http://registry:8081"),
        TimeRange(1_795_197_600_000, 1_795_201_200_000),
    ),
    unhandled=Unhandled({"payload.kind == 'set_email'": 2}),
    share_done=0.625,
)


def with_progress(plan: OffsetPlan, **by_partition: Progress) -> OffsetPlan:
    """The plan with the progress of ``p0``, ``p2`` exchanged."""
    claim = dict(plan.account.claims[ALL])
    claim.update({int(name[1:]): found for name, found in by_partition.items()})
    return changed(plan, claims={ALL: claim})


def signed(body: Mapping[str, Any]) -> bytes:
    """A plan file with this body and a digest that fits it."""
    unsigned = {name: value for name, value in body.items() if name != "digest"}
    digest = hashlib.sha256(orjson.dumps(unsigned, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return orjson.dumps({**unsigned, "digest": f"sha256:{digest}"}, option=orjson.OPT_INDENT_2)


def edited(plan: OffsetPlan, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The plan's file after an edit of its JSON by somebody who made the digest fit."""
    body: dict[str, Any] = orjson.loads(plan.encode())
    edit(body)
    return signed(body)


def leaves(body: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    """The way to every value inside a JSON object, objects themselves included."""
    if path:
        yield path
    if isinstance(body, dict):
        for name, value in body.items():
            yield from leaves(value, (*path, name))


def put(body: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        body = body[name]
    body[path[-1]] = value


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777
