"""drainer's errors as they are told through Spark, which shows an error's text and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from drainer.errors import DrainerError, RecordsDeleted

# The same advice, for someone who has options and no command line, and no plan to resume.
_WORDS = (
    ("-b HOST:PORT, DRAINER_BOOTSTRAP_SERVER,", "the option bootstrap.servers,"),
    ("leave --until out", "leave until out"),
    ("--from ", "from="),
    ("--until ", "until="),
    ("with --partition", "with partitions="),
    ("; this drain can't go on", ""),
    ("where shall the drain start", "where shall it start"),
)


def _reworded(text: str) -> str:
    for command, option in _WORDS:
        text = text.replace(command, option)
    return text


@contextmanager
def told() -> Iterator[None]:
    """Lets drainer's errors out with their hint in the text, and without what led to them."""
    try:
        yield
    except DrainerError as error:
        hint = error.hint
        if isinstance(error, RecordsDeleted) and "--accept-gap" in (hint or ""):
            hint = "give the topic more retention; from=earliest reads what is left"
        text = _reworded(str(error) if hint is None else f"{error}\nhint: {hint}")
        raise type(error)(text, hint=hint) from None
