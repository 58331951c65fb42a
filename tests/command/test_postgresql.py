"""The page about PostgreSQL and an HTTP service: its handler and its test, as they are printed."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import pytest

from command.process import Command
from drainer import testing
from drainer.loading.loader import LoadedHandler, load_handler
from postgres import postgres

pytestmark = pytest.mark.long  # it needs a PostgreSQL

PAGE = (Path(__file__).parents[2] / "docs/howto/postgresql.md").read_text()
(SCHEMA,) = re.findall(r"```sql\n(.+?)```", PAGE, re.DOTALL)
HANDLER, TEST = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
(RUN,) = re.findall(r"-H stock\.py:Stock -b broker:9092 (.+?) --set", PAGE, re.DOTALL)

STOCK = {"a": 5, "b": 2}
ORDERS: list[Any] = [
    {"items": [{"sku": "a", "change": -1}, {"sku": "b", "change": -3}]},  # more than there is
    {"items": [{"sku": "a", "change": -1}, {"sku": "c", "change": 1}]},  # no such article
    "not JSON",
    {"items": [{"sku": "b", "change": -1}]},
]
LEFT = {"a": 3, "b": 1}


class Shop:
    """A real service that answers 429 to the first request of each key, and counts changes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requested = Counter[str]()
        self.changes: list[dict[str, int]] = []

    def answer(self, key: str, change: dict[str, int]) -> int:
        self.requested[key] += 1
        if self.requested[key] == 1:
            return 429
        if self.requested[key] == 2:
            self.changes.append(change)
        return 204


@pytest.fixture
def shop() -> Iterator[Shop]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(found.answer(self.headers["Idempotency-Key"], json.loads(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Shop(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


Stock = Callable[[], dict[str, int]]  # what there is now


@pytest.fixture
def stock() -> Iterator[tuple[str, Stock]]:
    """The address of a PostgreSQL with the tables of the page, and their content."""
    with postgres() as dsn:

        def sql(statement: str) -> list[Any]:
            async def call() -> list[Any]:
                db = await asyncpg.connect(dsn)
                try:
                    return list(await db.fetch(statement))
                finally:
                    await db.close()

            return asyncio.run(call())

        for statement in filter(str.strip, SCHEMA.split(";")):
            sql(statement)
        for sku, amount in STOCK.items():
            sql(f"INSERT INTO stock VALUES ('{sku}', {amount})")
        yield dsn, lambda: {row["sku"]: row["amount"] for row in sql("TABLE stock")}


@pytest.fixture
def printed(tmp_path: Path) -> LoadedHandler:
    file = tmp_path / "stock.py"
    file.write_text(HANDLER)
    return load_handler(f"{file}:Stock")


def test_the_printed_test_passes(
    stock: tuple[str, Stock], shop: Shop, printed: LoadedHandler
) -> None:
    dsn, now = stock
    code = TEST.replace("postgresql://stock@localhost/test", dsn)
    found: dict[str, Any] = {}
    exec(code.replace("http://localhost:8080", shop.url), found)

    found["test_orders_change_the_stock_once"]()

    assert now() == {**STOCK, "a": 4}
    assert shop.changes == [{"a": -1}]


def test_the_handler_does_what_the_table_of_the_page_claims(
    stock: tuple[str, Stock], shop: Shop, printed: LoadedHandler
) -> None:
    dsn, now = stock
    orders = testing.messages(ORDERS)

    result = asyncio.run(testing.run(printed, orders, options={"dsn": dsn, "shop": shop.url}))

    assert Counter(sub.key for sub in result.done) == {"a": 2, "b": 1}
    assert Counter(str(error) for _, error in result.retried) == {"HTTP 429": 3}
    given_up = {sub.key: (type(error).__name__, str(error)) for sub, error in result.given_up}
    assert given_up["b"] == ("GiveUp", "b: enough")
    assert given_up["c"] == ("LookupError", "no article c")
    assert given_up[None][0] == "JSONDecodeError"
    assert now() == LEFT
    assert Counter(map(str, shop.changes)) == {"{'a': -1}": 2, "{'b': -1}": 1}


def test_a_drain_writes_what_the_page_claims(
    command: Command, stock: tuple[str, Stock], shop: Shop, printed: LoadedHandler
) -> None:
    dsn, now = stock
    topic = command.topic([each if isinstance(each, str) else json.dumps(each) for each in ORDERS])
    handler = printed.absolute_reference
    words = [*RUN.replace("\\\n", "").split(), "-o", "json"]
    ended = command.drain(topic, *words, code=6, handler=handler, dsn=dsn, shop=shop.url)
    found = ended.answer["sub_messages"]
    assert (found["done"], found["dead"], found["pending"]) == (3, 3, 0)
    assert now() == LEFT
    assert Counter(map(str, shop.changes)) == {"{'a': -1}": 2, "{'b': -1}": 1}
