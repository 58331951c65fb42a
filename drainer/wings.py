"""What can be had beside a drain, by name: a wing is imported when it is asked for, and only then.

The house knows its wings by these texts alone, so that a drain loads none of them.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from drainer.errors import Refused

# The callback or group of each command.
COMMANDS = {
    "redrive": "drainer.letters.cli.redrive:redrive",
    "dead": "drainer.letters.cli.dead:app",
    "inspect": "drainer.insight.cli.inspect:inspect",
    "estimate": "drainer.insight.cli.estimate:estimate",
    "certify": "drainer.certify.cli:certify",
    "limits": "drainer.limits.cli:app",
    "sandbox": "drainer.sandbox.cli:app",
    "demo": "drainer.demo.cli:demo",
}


class Hook(StrEnum):
    """What the house asks of a wing."""

    ASK_ESTIMATE = "drainer.insight.cli.estimate:ask"
    ESTIMATE_DRY_RUN = "drainer.insight.cli.estimate:estimate_dry_run"
    CHOOSE_ENGINE = "drainer.insight.cli.estimate:choose_engine"
    SPARK_SETTINGS = "drainer.spark.engine_choice:spark_settings"
    SETTLE_ON_SPARK = "drainer.spark.engine_choice:settle_on_spark"
    STORED_PLAN = "drainer.spark.stored_plan:StoredPlan"  # a plan at a URI
    TAKE_OVER = "drainer.spark.state:take_over"  # of tasks that a dead driver left
    REPORTS_SINCE = "drainer.spark.state:reports_since"  # what tasks reported and a plan has not
    LOAD_LIMITS = "drainer.limits.capping:load_limits"
    RECEIPTS = "drainer.letters.receipts:keeping"  # of a redrive, in its topic
    SETTLE_CAP = "drainer.limits.capping:settle_cap"


class Extra(StrEnum):
    """What ``pip install drainer[…]`` adds: the packages that a drain in one process does not
    need."""

    SPARK = "spark"
    REPORT = "report"
    CERTIFY = "certify"


PACKAGES = {
    Extra.SPARK: ("pyspark", "pyarrow", "pandas", "lz4", "obstore"),
    Extra.REPORT: ("jinja2", "markupsafe"),
    Extra.CERTIFY: ("cloudpickle", "hypothesis", "lz4", "time_machine"),
}


class ExtraMissing(Refused):
    """Raised when something is asked for whose packages are not installed."""


def load(place: str) -> Any:
    """What is at ``package.module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def insist_on(extra: Extra, what: str) -> None:
    """Raises ExtraMissing when a package that ``what`` needs is not installed."""
    missing = [name for name in PACKAGES[extra] if find_spec(name) is None]
    if missing:
        error = ExtraMissing(
            f"{what} needs {', '.join(missing)}, which this installation lacks",
            hint=f"Install drainer[{extra}].",
        )
        error.add_note(error.hint or "")  # for those who import, and see a traceback
        raise error
