"""An error is told in words; only --debug adds what a programmer wants to see."""

from __future__ import annotations

from command.process import Command

# That none of the other tests' commands shows a traceback, ``Running.ends`` makes sure of.


def test_only_debug_shows_the_traceback_of_what_the_handler_raised(command: Command) -> None:
    (command.folder / "failing.py").write_text("raise LookupError('the document is locked')\n")
    what = ["--topic", "t", "--group", "g", "--handler", "failing.py", "-b", "127.0.0.1:1"]
    plain = command("run", *what, code=3)
    debug = command("run", *what, code=3, env={"DRAINER_DEBUG": "1"})
    for outcome in (plain, debug):
        assert "LookupError: the document is locked" in outcome.error
    assert "Traceback" not in plain.err
    assert 'failing.py", line' in debug.err
