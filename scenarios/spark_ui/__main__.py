"""Takes a picture of what Spark's SQL tab shows of a running drain: its queries, and the plan of
one.

The upper part of the picture has the queries of the drain by name. The lower part has the plan of
one of them, with its numbers of rows: it reads and handles a slice.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import FloatRect, Page

from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.browser import browsing
from scenarios.connect_server import ConnectServer
from scenarios.fill import create_topic, fill
from scenarios.spark_scale.drains import HANDLERS
from scenarios.spark_scale.slots import Load

TOPIC, GROUP = "orders", "indexer"
MESSAGES, CONCURRENCY, LATENCY_MS = 6_000, 400, 40
SLICE = "512KiB"
SLICES = 3  # The picture is taken once this many slices are drained.
PATIENCE_S = 240.0
WIDTH, HEIGHT = 1280, 1600  # All of it is seen without scrolling.
FADES_MS = 500
HIDDEN = "[class*=scroll-btn] { display: none !important }"
HEADING, GRAPH, NAME = "h3:has-text('Details for Query')", "#plan-viz-graph", "[role=tooltip]"


def begin(folder: Path, servers: str, where: list[str]) -> subprocess.Popen[bytes]:
    words = [
        "--quiet",
        "run",
        "-b",
        servers,
        "--topic",
        TOPIC,
        "--group",
        GROUP,
        "--from",
        "earliest",
    ]
    words += ["--handler", f"{HANDLERS}:Wait", "--set", f"latency_ms={LATENCY_MS}", "--yes"]
    words += [
        "--plan",
        str(folder / "plan.json"),
        "--spark-conf",
        f"drainer.slice={SLICE}",
        "-c",
        str(CONCURRENCY),
    ]
    words += ["--spark-conf", f"drainer.state={folder / 'plan.json.state'}"]
    return subprocess.Popen([sys.executable, "-m", "drainer", *words, *where])


def queries(address: str) -> list[dict[str, Any]]:
    """Return the queries that Spark has, the oldest first. There are none while it is starting."""
    try:
        with urlopen(f"{address}/api/v1/applications", timeout=10) as answer:
            (application,) = json.load(answer)
        path = f"{address}/api/v1/applications/{application['id']}/sql?details=true&length=500"
        with urlopen(path, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)
    except (OSError, ValueError):
        return []
    return sorted(found, key=lambda each: each["id"])


def slices_done(address: str) -> list[dict[str, Any]]:
    """Return the queries of slices, which have a shuffle, as far as they are over."""
    return [
        each
        for each in queries(address)
        if each["status"] == "COMPLETED"
        and {"Exchange", "MapInArrow"} <= {node["nodeName"] for node in each["nodes"]}
    ]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > until_s:
            raise SystemExit("the drain was over before a picture was taken")
        time.sleep(0.2)


def shoot(page: Page, address: str, query: int, out: Path) -> None:
    """Write a picture of the list of queries, and of the plan of one with its last step
    selected."""
    page.goto(f"{address}/SQL/")
    page.wait_for_load_state("networkidle")
    page.add_style_tag(content=HIDDEN)
    shots = [page.locator("table", has_text="Description").last.screenshot()]
    page.goto(f"{address}/SQL/execution/?id={query}")
    page.wait_for_selector(f"{GRAPH} g.node")
    page.add_style_tag(content=HIDDEN)
    # The first one in the document is the last step of the plan.
    page.locator(f"{GRAPH} g.node", has_text="MapInArrow").first.click()
    page.wait_for_selector(NAME)
    page.wait_for_timeout(FADES_MS)
    shown = [page.locator(each).bounding_box() for each in (HEADING, GRAPH, NAME)]
    boxes = [box for box in shown if box is not None]
    top = boxes[0]["y"]
    bottom = max(box["y"] + box["height"] for box in boxes)
    area: FloatRect = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
    shots.append(page.screenshot(clip=area))
    images = (f'<img src="data:image/png;base64,{b64encode(each).decode()}">' for each in shots)
    page.set_content(f"<style>img {{ display: block; margin: 8px 0 }}</style>{''.join(images)}")
    page.screenshot(path=out, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.spark_ui", description=__doc__)
    parser.add_argument("--remote", action="store_true", help="drain on a server of Spark Connect")
    parser.add_argument("--out", type=Path, default=Path("spark_sql.png"))
    given = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (
        tempfile.TemporaryDirectory() as name,
        Broker(Path(name) / "broker", die_with_parent=True) as broker,
        browsing() as browser,
    ):
        folder, settings = Path(name), ClientSettings.load(broker.bootstrap_servers)
        create_topic(settings, TOPIC)
        fill(settings, TOPIC, Load(MESSAGES).records())
        conf = {"spark.ui.port": str(port)}
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})

        def picture(where: list[str]) -> None:
            process = begin(folder, broker.bootstrap_servers, where)
            try:
                wait_for(lambda: len(slices_done(address)) >= SLICES, process)
                shoot(page, address, slices_done(address)[-1]["id"], given.out)
                still = process.poll() is None
            finally:
                process.terminate()
                process.wait()
            print(f"{given.out}: taken while the drain {'ran' if still else 'had ended'}")

        if given.remote:
            (folder / "server").mkdir()
            with ConnectServer(folder / "server", conf=conf) as server:
                picture(["--master", server.url])
        else:
            options = [word for each in conf.items() for word in ("--spark-conf", "=".join(each))]
            picture(["--engine", "spark", "--master", "local[2]", *options])


if __name__ == "__main__":
    main()
