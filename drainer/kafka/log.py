"""The log of one client. drainer's errors show its complaints; only a log in JSON prints them."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from drainer.text.escape import foreign

KEEP_COMPLAINTS = 30
# A complaint that was logged before is logged again only if it has not come for this long.
AGAIN_S = 60.0

# Only --tune log-format=json prints the lines of this logger (LogTerminal). On a terminal, errors
# show the complaints that matter.
_LOGGER = logging.getLogger("drainer.librdkafka")
_LOGGER.addHandler(logging.NullHandler())
# drainer's lines must not reach handlers that the user's own code has set up on the root logger.
logging.getLogger("drainer").propagate = False

# The end of a complaint, from the bracket on. It helps no reader: "host:9092/bootstrap: Connect to
# ... failed: Connection refused (after 0ms in state CONNECT, 3 identical error(s) suppressed)".
_STATE = re.compile(r"\s*\(after \d+ms in state [^)]*\)?.*$")
_THREAD = re.compile(r"^\[thrd:[^\]]*\]+:\s*")


# A line of debug=metadata. The client logs it before it reads anything from a recreated topic.
_TOPIC_ID = re.compile(r"Topic (\S+) changed id from \S+ to (\S+)$")
_NO_ID = "A" * 22


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error of a client, or a line of its log, about itself or a broker."""

    code: int | None  # librdkafka's error code; None for a line of its log.
    text: str  # The reason, without secrets.
    at_s: float  # The time by the monotonic clock.


class ClientLog(logging.Handler):
    """Takes the log lines and errors of a client, and keeps the latest ones that differ.

    librdkafka prints to stderr what no logger takes. It repeats itself at each attempt to connect.
    """

    def __init__(self) -> None:
        super().__init__()
        self._complaints: deque[Complaint] = deque(maxlen=KEEP_COMPLAINTS)
        self.topic_ids: dict[str, str] = {}  # The new ids of topics that were recreated, by name.
        self._no_token = ""

    @property
    def complaints(self) -> list[Complaint]:
        """The complaints, the latest last. Those with a code are errors, the others are lines."""
        return list(self._complaints)

    def since(self, at_s: float) -> list[Complaint]:
        """Return the complaints since a time by the monotonic clock."""
        return [complaint for complaint in self.complaints if complaint.at_s >= at_s]

    def trouble_since(self, at_s: float) -> str | None:
        """Return the text of the latest error since a time by the monotonic clock.

        Returns None if there is no error. The error that all brokers are down is returned only if
        there is no other.
        """
        errors = [complaint for complaint in self.since(at_s) if complaint.code is not None]
        specific = [c for c in errors if c.code != KafkaError._ALL_BROKERS_DOWN] or errors
        return specific[-1].text if specific else None

    def properties(self) -> dict[str, Any]:
        """Return the properties that make a client pass its log lines and errors to this object."""
        logger = logging.Logger("librdkafka")  # It is not part of the program's tree of loggers.
        logger.addHandler(self)
        return {"logger": logger, "error_cb": self.take}

    def take(self, error: KafkaError) -> None:
        """Keep an error. This is librdkafka's ``error_cb``."""
        self._keep(error.code(), error.str())

    def note_token(self, trouble: str) -> None:
        """Keep the reason why no token can be made. It is appended to later errors of a login.

        ``trouble`` is empty once a token was made.
        """
        self._no_token = trouble

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line of the log."""
        line = record.getMessage()
        if line.startswith("FAIL "):  # Other lines are about settings and states.
            self._keep(None, _THREAD.sub("", line.partition("] ")[2] or line))
        elif (found := _TOPIC_ID.search(line)) and found[2] != _NO_ID:
            self.topic_ids[found[1]] = url_safe(found[2])

    def _keep(self, code: int | None, line: str) -> None:
        text = _STATE.sub("", line)
        if self._no_token and code == KafkaError._AUTHENTICATION:
            text = f"{text} ({self._no_token})"
        text = foreign(text)
        known = [c for c in self.complaints if (c.code, c.text) == (code, text)]
        for complaint in known:
            self._complaints.remove(complaint)
        now_s = time.monotonic()
        if not known or now_s - known[0].at_s > AGAIN_S:
            _LOGGER.warning("%s", text, extra={"code": code})
        self._complaints.append(Complaint(code, text, now_s))


def url_safe(topic_id: str) -> str:
    """Return a topic's id as Kafka's own tools print it. librdkafka gives it in plain base64."""
    return topic_id.replace("+", "-").replace("/", "_")
