"""The formats of what drainer writes, and the check of the version of what it reads.

docs/reference/formats.md says what is promised of each, and for how long.
"""

from __future__ import annotations

from dataclasses import dataclass

from drainer.errors import DrainerError
from drainer.version import __version__


@dataclass(frozen=True, slots=True)
class Format:
    """A format, whose versions have names such as ``drainer-plan/11``.

    Attributes:
        family: the part of the name that all versions share.
        what: what has the format, as errors name it.
        version: the version that this drainer writes.
        oldest: the oldest version that this drainer reads.
    """

    family: str
    what: str
    version: int
    oldest: int

    def __str__(self) -> str:
        return f"{self.family}/{self.version}"

    def ensure_read(self, name: object, refused: type[DrainerError], way_out: str = "") -> int:
        """Return the version that has this name.

        Raises ``refused`` if this drainer does not read that version; the hint then ends with
        ``way_out``. Raises ValueError if it is the name of something else.
        """
        family, _, number = str(name).rpartition("/")
        if family != self.family or not number.isdecimal():
            raise ValueError(f"{name!r} is not a version of {self.family}")
        version, this = int(number), f"this drainer {__version__}"
        if self.oldest <= version <= self.version:
            return version
        about, advice = (
            f"older than {this} reads (from {self.oldest} on)",
            "Install an older drainer.",
        )
        if version > self.version:
            about = f"newer than {this} knows (up to {self.version})"
            advice = "Install the newer drainer that wrote it."
        raise refused(
            f"{self.what} format {version} is {about}", hint=f"{advice} {way_out}".strip()
        )


PLAN = Format("drainer-plan", "plan", version=11, oldest=10)
PLAN_TOPIC = Format("drainer-plan-topic", "plan topic", version=1, oldest=1)
JOURNAL = Format("drainer-journal", "journal", version=1, oldest=1)
STATE = Format("drainer-state", "state", version=1, oldest=1)
LETTER = Format("drainer-dead-letter", "dead letter", version=2, oldest=2)
RECEIPT = Format("drainer-redriven", "receipt", version=1, oldest=1)
LIMITS = Format("drainer-limits", "limits", version=5, oldest=5)
