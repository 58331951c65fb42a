"""Rows that a database makes depend on each other: the check finds a sub-key that is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from drainer import Context, Handler, Message, SubMessage, testing
from drainer.testing import LawBroken

TABLES = """
PRAGMA foreign_keys = ON;
CREATE TABLE users (id TEXT PRIMARY KEY, email TEXT UNIQUE);
INSERT INTO users VALUES ('ann', 'a@b'), ('ben', 'b@b');
CREATE TABLE orders (id TEXT PRIMARY KEY);
CREATE TABLE lines (id TEXT PRIMARY KEY, of_order TEXT REFERENCES orders);
CREATE TABLE totals (of_order TEXT PRIMARY KEY, lines INTEGER, newest TEXT);
CREATE TRIGGER count_lines AFTER INSERT ON lines BEGIN
  INSERT INTO totals VALUES (NEW.of_order, 1, NEW.id)
  ON CONFLICT (of_order) DO UPDATE SET lines = lines + 1, newest = NEW.id;
END;
"""
GIVES_UP = ("UPDATE users SET email = NULL WHERE id = 'ann'", "ann", "a@b")
TAKES = ("UPDATE users SET email = 'a@b' WHERE id = 'ben'", "ben", "a@b")
ORDER = ("INSERT OR IGNORE INTO orders VALUES ('o1')", "o1", "o1")
LINE_1 = ("INSERT OR IGNORE INTO lines VALUES ('l1', 'o1')", "l1", "o1")
LINE_2 = ("INSERT OR IGNORE INTO lines VALUES ('l2', 'o1')", "l2", "o1")


class Rows(Handler):
    """Executes statements; the sub-key is the row that a statement names."""

    def open(self, context: Context) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.database.executescript(TABLES)

    def split(self, message: Message) -> Iterator[SubMessage]:
        statement, *keys = orjson.loads(message.value or b"")
        yield SubMessage(keys=self.keys_of(*keys), payload=statement)

    def keys_of(self, row: str, other: str) -> list[str]:
        return [row]

    async def handle(self, sub: SubMessage) -> None:
        self.database.execute(sub.payload)

    def close(self) -> None:
        self.database.close()


class RowsAndWhatTheyDependOn(Rows):
    def keys_of(self, row: str, other: str) -> list[str]:
        return [row, other]


def state(handler: Any) -> dict[str, list[Any]]:
    tables = ("users", "orders", "lines", "totals")
    return {
        each: handler.database.execute(f"SELECT * FROM {each} ORDER BY 1").fetchall()
        for each in tables
    }


@pytest.mark.parametrize(
    ("statements", "shows"),
    [
        ([GIVES_UP, TAKES], "UNIQUE constraint failed: users.email"),
        ([ORDER, LINE_1], "FOREIGN KEY constraint failed"),
        ([ORDER, LINE_1, LINE_2], "FOREIGN KEY constraint failed"),
    ],
    ids=["unique value", "foreign key", "foreign key among more"],
)
def test_rows_that_a_constraint_connects_do_not_commute_by_their_ids(
    statements: list[tuple[str, ...]], shows: str
) -> None:
    messages = testing.messages(statements)
    with pytest.raises(LawBroken, match=shows):
        testing.check_commutes(Rows, messages, state)


def test_a_trigger_that_keeps_the_last_writer_is_found_although_nothing_fails() -> None:
    class Lines(Rows):
        def open(self, context: Context) -> None:
            super().open(context)
            self.database.execute(ORDER[0])

    messages = testing.messages([LINE_1, LINE_2])
    with pytest.raises(LawBroken, match="totals"):
        testing.check_commutes(Lines, messages, state)


def test_with_what_connects_them_as_another_sub_key_they_do() -> None:
    for statements in ([GIVES_UP, TAKES], [ORDER, LINE_1, LINE_2]):
        apart = ("INSERT OR IGNORE INTO users VALUES ('cat', 'c@b')", "cat", "c@b")
        messages = testing.messages([*statements, apart])
        testing.check_commutes(RowsAndWhatTheyDependOn, messages, state)
