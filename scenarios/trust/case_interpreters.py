"""Cases of modules that another user put into the working folder, for commands that start a
Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path
from threading import Thread

from scenarios.trust.case import TRY_S, Stage, case, ensure, launch_script

HANDLER = """
import drainer

def split(message):
    yield drainer.SubMessage(key=message.key, payload=message.value)

def handle(sub):
    pass
"""
SCHEMA = 'syntax = "proto3"; message Order { string id = 1; }'
ORDER = b"\0\0\0\0\1\0" + b"\x0a\x01a"  # The first message of schema 1.


class Plant:
    """A working folder that has a module of every name that an import could name."""

    def __init__(self, folder: Path) -> None:
        self._ran = folder.with_name(f"{folder.name}-ran")
        names = {*sys.stdlib_module_names, *packages_distributions(), "drainer"}
        for name in (*filter(str.isidentifier, names), "sitecustomize", "usercustomize"):
            self.plant(folder / f"{name}.py")

    def plant(self, path: Path) -> None:
        mark = f"import posix\nposix.close(posix.open({str(self._ran)!r}, {os.O_CREAT}))\n"
        path.write_text(mark, encoding="utf-8")

    def ensure_nothing_ran(self, what: str) -> None:
        ensure(not self._ran.exists(), f"{what} ran a module of the working folder")


@contextmanager
def registry() -> Iterator[str]:
    """Provide the URL of a registry that answers each question with one Protobuf schema."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": SCHEMA, "schemaType": "PROTOBUF"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@case(
    "modules planted in the working folder, under commands that start a Python",
    before="certify ran a planted drainer/, --value-format protobuf a planted grpc_tools/",
)
def modules_of_the_working_folder(stage: Stage) -> str:
    # `python -m drainer` itself searches the working folder.
    stage = replace(stage, launch=launch_script)
    plant = Plant(stage.folder)
    handlers = stage.folder / "handlers"
    handlers.mkdir()
    plant.plant(handlers / "sitecustomize.py")
    own = handlers / "own_handler.py"
    own.write_text(HANDLER, encoding="utf-8")
    stage.drain(stage.topic(20), str(own))
    plant.ensure_nothing_ran("run")
    stage.drainer("certify", "-b", stage.bootstrap, "--topic", stage.topic(20), str(own))
    plant.ensure_nothing_ran("certify")
    with registry() as url:
        by_schema = ("--value-format", "protobuf", "--registry", url)
        stage.drain(stage.topic([(b"a", ORDER)] * 20), "count", *by_schema)
    plant.ensure_nothing_ran("run --value-format protobuf")
    return "no child imports from there"


@case(
    "modules planted in the working folder, under Spark's Python workers",
    before="each worker ran a planted importlib/",
)
def modules_under_spark(stage: Stage) -> str:
    import pyspark  # noqa: PLC0415 - of the extra

    stage = replace(stage, launch=launch_script)
    plant = Plant(stage.folder)
    stage.drain(stage.topic(20), "count", "--engine", "spark", "--master", "local[2]")
    plant.ensure_nothing_ran("run --engine spark")
    submit = str(Path(pyspark.__file__).with_name("bin") / "spark-submit")
    app = [sys.executable, "-P", "-m", "drainer.spark.app"]
    path = subprocess.run(app, cwd=stage.folder, capture_output=True, text=True, check=True)
    words = stage.run_words(stage.topic(20), "count")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(
        [submit, "--master", "local[2]", path.stdout.strip(), *words],
        cwd=stage.folder,
        env=environment,
        capture_output=True,
        timeout=TRY_S,
        check=False,
    )
    ensure(ended.returncode == 0, f"exit {ended.returncode}: {ended.stderr[-600:]!r}")
    plant.ensure_nothing_ran("spark-submit")
    return "no worker imports from there"
