"""The preview: what a drain is about to do, in the words it is shown in before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from drainer.core.bundles import Bundling
from drainer.core.codec import JsonRecord
from drainer.core.transaction import HeldBack, held_json
from drainer.policy.concurrency import Concurrency
from drainer.policy.failures import FailureSettings
from drainer.policy.rate_cap import Cap
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import RuleSettings


@dataclass(frozen=True, slots=True)
class PartitionAction:
    """One partition's part: offsets ``[start, end)``, and where the group stands now.

    ``committed`` is None when the group has no offset there. ``finished`` counts messages that an
    earlier run of this drain finished. ``leaps`` counts offsets between the group's offset and the
    start that are passed over unhandled, because ``--from`` says so.
    """

    partition: int
    start: int
    end: int
    committed: int | None
    finished: int = 0
    leaps: int = 0

    @property
    def offsets(self) -> int:
        return self.end - self.start


PROCESS, SPARK = "process", "spark"


class EngineName(StrEnum):
    """What ``--engine`` says."""

    AUTO = "auto"
    PROCESS = PROCESS
    SPARK = SPARK


@dataclass(frozen=True, slots=True)
class EngineChoice(JsonRecord):
    """What the drain runs on, and why on that.

    The other fields are Spark's: ``tasks`` is None when Spark's cores say how many handle at once,
    and ``conf`` is without secrets.
    """

    name: str = PROCESS
    why: str = ""
    master: str | None = None
    tasks: int | None = None
    wave_bytes: int | None = None
    state: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    archives: tuple[str, ...] = ()

    @property
    def is_spark(self) -> bool:
        return self.name == SPARK


@dataclass(frozen=True, slots=True)
class Preview:
    """All that a person should know before saying yes."""

    topic: str
    topic_id: str
    cluster_id: str
    bootstrap_servers: str
    group: str
    group_state: str  # "empty" or "dead"; anything else was refused
    handler: str
    order: str
    concurrency: Concurrency
    buffer_bytes: int
    isolation: str
    plan_path: Path
    partitions: tuple[PartitionAction, ...]
    resumes: bool = False
    checks: tuple[str, ...] = ()  # what was looked at and found right, a sentence each
    warnings: tuple[str, ...] = ()
    failures: FailureSettings = field(default_factory=FailureSettings)
    makes_topic: str | None = None  # for dead letters
    redrive: RedriveSettings | None = None  # when the topic holds dead letters
    bundling: Bundling | None = None  # when the handler takes several sub-messages at once
    rules: RuleSettings = field(default_factory=RuleSettings)
    engine: EngineChoice = EngineChoice()
    cap: Cap | None = None  # of what is read, at the messages' mean size
    held: tuple[HeldBack, ...] = ()  # by open transactions, behind its end

    @property
    def offsets(self) -> int:
        """The size of the backlog in offsets; holes make the count of messages smaller."""
        return sum(part.offsets for part in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "cluster_id": self.cluster_id,
            "group": self.group,
            "group_state": self.group_state,
            "handler": self.handler,
            "bundling": None if self.bundling is None else self.bundling.as_json(),
            "order": self.order,
            "concurrency": self.concurrency.as_json(),
            "isolation": self.isolation,
            "plan": str(self.plan_path),
            "resumes": self.resumes,
            "offsets": self.offsets,
            "held_back": held_json(self.held),
            "partitions": {
                str(part.partition): {
                    "start": part.start,
                    "end": part.end,
                    "committed": part.committed,
                }
                for part in self.partitions
            },
            "checks": list(self.checks),
            "warnings": list(self.warnings),
            "failures": self.failures.as_json(),
            "makes_topic": self.makes_topic,
            "redrive": None if self.redrive is None else self.redrive.as_json(),
            "rules": self.rules.as_json(),
            "engine": self.engine.as_json(),
            "cap": None if self.cap is None else cap_json(self.cap),
        }


def cap_json(cap: Cap) -> dict[str, object]:
    """A cap as ``--json`` tells it."""
    return {
        "messages_per_s": round(cap.messages_per_s, 1),
        "bytes_per_s": round(cap.bytes_per_s),
        "message_bytes": round(cap.message_bytes),
        "source": cap.source,
    }
