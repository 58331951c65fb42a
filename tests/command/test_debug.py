"""An error is told in words; only --debug adds what a programmer wants to see."""

from __future__ import annotations

import pytest

from command.conftest import MakeTopic, distinct
from command.process import Command

# That none of the other tests' commands shows a traceback, ``Running.ends`` makes sure of.

FAILING = {
    "handle": "async def handle(sub):\n    raise LookupError('the document is locked')\n",
    "import": "raise LookupError('the document is locked')\n",
}


@pytest.mark.parametrize(("where", "code"), [("handle", 5), ("import", 3)])
def test_only_debug_shows_the_traceback_of_what_the_handler_raised(
    command: Command, make_topic: MakeTopic, where: str, code: int
) -> None:
    handlers = command.home / "failing.py"
    handlers.write_text(FAILING[where])
    first, second = (make_topic(distinct(3)) for _ in range(2))
    plain = command.begin(first, handler=str(handlers)).ends(code)
    debug = command.begin(second, "--debug", handler=str(handlers)).ends(code)
    for outcome in (plain, debug):
        assert "LookupError: the document is locked" in outcome.error
        assert outcome.out == ""
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err
    assert 'failing.py", line' in debug.err


def test_debug_can_be_a_variable(command: Command) -> None:
    handlers = command.folder / "failing.py"
    handlers.write_text(FAILING["import"])
    what = ["--topic", "t", "--group", "g", "--handler", str(handlers), "-b", "127.0.0.1:1"]
    assert "Traceback" in command("run", *what, code=3, env={"DRAINER_DEBUG": "1"}).err
