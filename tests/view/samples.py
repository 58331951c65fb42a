"""Records for the views to show, and streams for them to be shown on."""

from __future__ import annotations

import io
import re
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

from builders import AT, a_partition, a_plan, changed, counts, progress_at
from drainer.engine.preview import PartitionAction, Preview
from drainer.model.account import Event, EventKind
from drainer.model.claims import ALL
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Partial
from drainer.model.status import AutoStatus
from drainer.spark.assign.status import SparkStatus
from drainer.view.terminal import Form, Terminal

ENDED = datetime(2026, 3, 14, 19, 4, 40, tzinfo=timezone(timedelta(hours=1), "CET"))
EVIL = "<script>document.title = 'pwned'</script>"
AUTO = AutoStatus(310, 2_000, 290, searching=True, why="trying more")


class Screen(io.StringIO):
    """A stream that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def plain(screen: io.StringIO) -> str:
    """What is on a screen, without colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())


def terminal(
    form: Form | None = None, *, quiet: bool = False, debug: bool = False, width: int = 120
) -> tuple[Terminal, io.StringIO, io.StringIO]:
    """A terminal that is none: (terminal, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    made = Terminal(
        form, quiet=quiet, debug=debug, stdin=io.StringIO(), stdout=out, stderr=err, width=width
    )
    return made, out, err


def on_spark(count: int) -> SparkStatus:
    """The third of about twelve slices, with so many tasks: each fourth one has ended."""
    doing = (
        "ended" if n % 4 == 3 else "waiting" if n % 7 == 6 else "handling" for n in range(count)
    )
    return SparkStatus(
        3,
        12,
        ahead=True,
        slice_s=42.0,
        tasks=Counter(doing),
        stragglers=("7.0 on worker-1",),
        quiet_s=7.2,
    )


_OF_PLAN = ("failures", "redrive")


def action(count: int = 1, **changes: object) -> Preview:
    """A drain about to begin; the backlogs grow with the number of the partition."""
    parts = tuple(PartitionAction(n, 1_000, 1_000 + 10_000 * (n + 1), 1_000) for n in range(count))
    of_plan = {each: changes.pop(each) for each in _OF_PLAN if each in changes}
    if changes.get("resumes"):
        of_plan["history"] = (Event(AT, EventKind.RESUMED, "ana@db1"),)
    fields: dict[str, object] = {
        "plan": changed(
            plan(),
            bootstrap_servers="kafka-1.prod:9092,kafka-2.prod:9092",
            **of_plan,
        ),
        "concurrency": Concurrency.fixed(1_000),
        "buffer_bytes": 256 << 20,
        "plan_path": Path("/var/lib/drainer/orders.reindexer.plan"),
        "partitions": parts,
        "checks": (
            "group reindexer is empty: no consumer will race with this drain",
            "no other drain holds the lock of group reindexer",
            "the backlog is still in the log: log start 0 is at or below offset 1000",
        ),
    }
    return Preview(**(fields | changes))  # type: ignore[arg-type]


def plan(partitions: int = 1) -> OffsetPlan:
    """A plan of a drain that was stopped half-way."""
    progress = progress_at(
        watermark=5_000,
        finished=((5_010, 5_060), (6_000, 6_001)),
        partial={5_001: Partial(4, 0xBEEF, 0b0101)},
        messages=counts(done=4_051, pending=49),
        sub_messages=counts(done=16_206, pending=194),
    )
    return a_plan(
        drain_id="0d4f7c1e",
        created="2025-11-03T18:02:11Z",
        updated="2025-11-03T18:41:50Z",
        generation=2_379,
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        bootstrap_servers="kafka-1.prod:9092",
        topic_id="m7AfP2dQSNq0kYl3ZcTJmA",
        group="reindexer",
        handler="reindex.py:Reindex",
        partitions={
            n: a_partition(1_000, 9_000 + n, prior=1_000, committed=5_000)
            for n in range(partitions)
        },
        claims={ALL: dict.fromkeys(range(partitions), progress)},
    )
