"""Writes ``docs/reference/cli``, a page for each command with all of its options; the table of
metrics in ``docs/reference/metrics.md``; the OpenAPI document of the handler ``http``; the JSON
Schema of what commands print; the page of ``evidence.yaml``; and ``llms.txt``, which names all
pages and commands.

Run it as ``python docs/generate.py``; a test compares what it would write with what is there.
"""

from __future__ import annotations

import json
import os
import re
import runpy
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import yaml
from typer.main import get_command

from drainer.cli.app import PANELS, app
from drainer.cli.declared import declared_by
from drainer.http.protocol import Answer, CallItem, SingleAnswer
from drainer.metrics.names import METRICS, Metric
from drainer.model.option import PREFIX, Option, ValueType
from drainer.spark.assign.status import METRICS as METRICS_OF_SPARK

FOLDER = Path(__file__).parent / "reference/cli"
METRICS_PAGE = FOLDER.parent / "metrics.md"
OPENAPI = FOLDER.parent / "http.openapi.json"
OUTPUT_SCHEMA = FOLDER.parent / "output.schema.json"
LLMS = FOLDER.parent.parent / "llms.txt"
EVIDENCE = LLMS.with_name("evidence.yaml")
EVIDENCE_PAGE = FOLDER.parent / "evidence.md"
PROTOCOL = "1"
HEAD = "option | meaning | default | variable\n---|---|---|---"
LLMS_NOTES = """All commands but `demo` and `sandbox down` take `-o json`, which prints one object
with `status`, `exit_code`, `hint` and `next` (the command that comes next) among its fields. Its
JSON Schema is [output.schema.json](output.schema.json). A drain shows a preview and asks;
`--dry-run` ends after the preview, and `--yes` confirms it. Commands that only read are `lag`,
`inspect`, `estimate`, `probe`, `ps`, `plan show` and `plan verify`."""
TUNE = """# --tune NAME=VALUE

Settings that few drains need share one option, which may be repeated:

```console
$ drainer resume orders.indexer.plan.json --tune max-outage=2h --tune grace=1m
```

A setting with a variable can also stand in a [profile](../configuration.md), under its name.
`drainer set` changes the live ones while the drain runs."""
TUNE_HEAD = "setting | meaning | default | variable | live | commands\n---|---|---|---|---|---"

EVIDENCE_HEAD = """# Evidence

What drainer promises, and which tests and measurements show it. Each promise is quoted as it stands
on its pages. *Shown for* is what the evidence covers. *Limit* is what it does not cover, or what
was not tried.

A name with `::` is a test. In a clone of this repository, `pytest NAME` runs it, or, if it takes
minutes, `pytest -m long NAME`. `python -m scenarios.NAME` is an experiment, whose figures are those
of one machine. A test fails if the README has a figure, or a word such as "never" or "each", which
is not in one of these quotes."""


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its words."""
    children = getattr(command, "commands", {})
    if not children:
        yield " ".join(words), command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


def tables(command: Any) -> str:
    """The arguments and options of a command, a table for each panel of its help."""
    panels: dict[str, list[str]] = {"": [HEAD]}
    declared = declared_by(command)
    for param in command.params:
        option = declared.get(param.name) or typers_own(param)
        panel = "" if option.panel is None else f"**{option.panel}**\n\n"
        panels.setdefault(panel, [f"{panel}{HEAD}"]).append(row(option))
    return "\n\n".join("\n".join(lines) for lines in panels.values() if len(lines) > 1)


def typers_own(param: Any) -> Option:
    """An option that is not of a command's own: of the whole program, or for help."""
    kind = ValueType(param.metavar, str) if param.metavar else None
    has_variable = param.allow_from_autoenv and "completion" not in param.name
    variable = f"{PREFIX}_{param.name.upper()}" if has_variable else None
    more = {"envvar": variable, "panel": param.rich_help_panel}
    return Option(param.help, name=param.opts[0], default=None, kind=kind, **more)


def row(option: Option, *more: str) -> str:
    """What is to be known of an option or argument, as a line of a table."""
    names = [f"`{name}`" for name in (option.short, option.name) if name]
    if option.tune:
        names = [f"`{option.label}={'on|off' if option.is_flag else option.typed_as}`"]
    elif option.kind is not None and not (option.is_flag or option.is_argument):
        names[-1] = f"{names[-1][:-1]} {option.typed_as}`"
    meaning, _, default = option.help.partition(" Default: ")
    default = option.unset or option.default_text or default.removesuffix(".")
    if option.default is ...:
        default = "required"
    if option.name == "--tune":
        meaning = "Set a [rare setting](tune.md); repeatable."
    variable = f"`{option.variable}`" if option.variable else ""
    cells = (", ".join(names), meaning, default, variable, *more)
    return " | ".join(each.replace("|", "\\|") for each in cells).rstrip()


def rare(commands: Iterable[tuple[str, Any]]) -> str:
    """A table of the settings of ``--tune``, with the defaults of a new drain."""
    known: dict[str, Option] = {}
    takes: dict[str, list[str]] = {}
    for words, command in commands:
        for each in declared_by(command).values():
            if each.tune:
                takes.setdefault(each.label, []).append(words)
                if words == "run" or each.label not in known:
                    known[each.label] = each
    rows = (
        row(known[label], "yes" if known[label].live else "", ", ".join(takes[label]))
        for label in sorted(known)
    )
    return "\n".join((TUNE_HEAD, *rows))


def described(help_text: str) -> str:
    """The docstring, with its examples as code."""
    text = "\n".join(line.strip() for line in help_text.strip().splitlines())
    before, *after = re.split(r"^Examples?:", text, maxsplit=1, flags=re.MULTILINE)
    examples = re.findall(r"`((?:export \w+=\$\()?drainer .+?)`", "".join(after))
    lines = "".join(f"$ {example}\n" for example in examples)
    return f"{before}```console\n{lines}```" if examples else text


def pages() -> dict[str, str]:
    """The text of each file by its name."""
    root: Any = get_command(app)
    made: dict[str, list[str]] = {}
    for words, command in leaves(root, ()):
        name = words.split()[0]
        parts = made.setdefault(name, [])
        level = "#" if not parts and words == name else "##"
        if not parts and words != name:
            parts.append(f"# drainer {name}\n\n{described(root.commands[name].help)}")
        parts += [f"{level} drainer {words}\n\n{described(command.help)}", tables(command)]
    for parts in made.values():
        parts.append("[Configuration](../configuration.md) has the values, variables and profiles.")
    made["index"] = ["# Commands"]
    for panel, names in PANELS.items():
        lines = [f"[{name}]({name}.md) | {line_of(root.commands[name])}" for name in names]
        made["index"].append("\n".join((f"{panel.lower()} | what it does", "---|---", *lines)))
    made["tune"] = [TUNE, rare(leaves(root, ()))]
    made["index"] += [
        "[--tune](tune.md) has the rare settings of all commands.",
        "## drainer",
        "These options stand before the command.",
        tables(root),
    ]
    return {f"{name}.md": "\n\n".join(parts) + "\n" for name, parts in made.items()}


def line_of(command: Any) -> str:
    return " ".join(command.help.split("\n\n")[0].split())


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
    OPENAPI.write_text(openapi_text(), encoding="utf-8")
    OUTPUT_SCHEMA.write_text(output_schema_text(), encoding="utf-8")
    EVIDENCE_PAGE.write_text(evidence_page(), encoding="utf-8")
    LLMS.write_text(llms_text(), encoding="utf-8")


def evidence() -> Any:
    """The promises by topic, each with the pages that make it, and what shows it."""
    return yaml.safe_load(EVIDENCE.read_text(encoding="utf-8"))


def evidence_page() -> str:
    parts = [EVIDENCE_HEAD]
    for topic, promises in evidence()["promises"].items():
        parts += [f"## {topic}", *(part for each in promises for part in evidence_of(each))]
    return "\n\n".join(parts) + "\n"


def evidence_of(promise: dict[str, Any]) -> Iterator[str]:
    """The parts of the page about one promise."""
    yield f"### {promise['id'].replace('-', ' ').capitalize()}"
    for page, quotes in promise["quotes"].items():
        path = EVIDENCE.parent.parent / page
        title = "README" if page == "README.md" else beginning(path)[0]
        link = f"[{title}]({os.path.relpath(path, EVIDENCE_PAGE.parent)})"
        yield "\n>\n".join(f"> {link}: {quote}" for quote in quotes)
    shown = [f"`{each}`" for each in promise["evidence"]]
    lines = ("- Shown for: " + promise["scope"], "- Limit: " + promise["limit"])
    yield "\n".join((*lines, "- Evidence: " + ", ".join(shown), f"- Try: `{promise['inspect']}`"))


def output_schema_text() -> str:
    """The JSON Schema of what all commands print with ``-o json``."""
    made = runpy.run_path(str(LLMS.with_name("outputs.py")))["schema"]()
    return json.dumps(made, indent=1) + "\n"


def llms_text() -> str:
    """The pages of the site and the commands, with what each is for, in the form of llmstxt.org."""
    conf = runpy.run_path(str(LLMS.with_name("conf.py")))
    root: Any = get_command(app)
    title, purpose = beginning(LLMS.with_name("index.md"))
    parts = [f"# {title}\n\n> {purpose}", LLMS_NOTES]
    kinds = {"Start": ["tutorial"]}
    for kind, first in conf["KINDS"].items():
        folder = kind.lower().replace(" ", "")
        pages = sorted(f"{folder}/{each.stem}" for each in (LLMS.parent / folder).glob("*.md"))
        kinds[kind] = [*dict.fromkeys((*(f"{folder}/{name}" for name in first), *pages))]
    kinds["Reference"] += ["reference/cli/tune"]
    for kind, pages in kinds.items():
        lines = [f"- {linked(page)}" for page in pages]
        parts.append("\n".join((f"## {kind}", "", *lines)))
    commands = [
        f"- [drainer {words}](reference/cli/{words.split()[0]}.html): {line_of(command)}"
        for words, command in leaves(root, ())
    ]
    parts.append("\n".join(("## Commands", "", *commands)))
    return "\n\n".join(parts) + "\n"


def linked(page: str) -> str:
    """A link to a page, with the first sentence below its title."""
    title, purpose = beginning(LLMS.parent / f"{page}.md")
    return f"[{title}]({page}.html)" + ("" if "|" in purpose else f": {purpose}")


def beginning(page: Path) -> tuple[str, str]:
    """The title of a page, and the first sentence below it, without markup."""
    text = page.read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n")
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(rest.strip().split("\n\n")[0].split()))
    sentence = re.match(r".+?[.:](?= |$)", plain)
    return title, (sentence[0] if sentence else plain).replace("`", "").rstrip(":")


def metrics_page() -> str:
    """The page of the metrics, with a row for each metric in its table."""
    rows = "".join(map(metric_row, (*METRICS, *METRICS_OF_SPARK)))
    table = re.compile(r"(?:^\| `drainer_.*\n)+", re.MULTILINE)
    return table.sub(lambda _: rows, METRICS_PAGE.read_text(encoding="utf-8"), count=1)


def metric_row(metric: Metric[Any]) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.name}{labels}` | {metric.meaning} |\n"


def openapi_text() -> str:
    return json.dumps(openapi(), indent=2) + "\n"


def openapi() -> dict[str, Any]:
    """The protocol as an OpenAPI document."""
    text = "The body of a call with several sub-messages, no two of them of one sub-key."
    call_kind = msgspec.defstruct("Call", [("batch", list[CallItem])], namespace={"__doc__": text})
    kinds = (CallItem, call_kind, Answer, SingleAnswer)
    refs, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    for each in components.values():
        # Versions of msgspec differ in whether they remove the indentation of a docstring.
        each["description"] = cleandoc(each["description"])
    item, call, answer, single = ({"application/json": {"schema": ref}} for ref in refs)
    texts = {
        "204": "Done; to a single call only.",
        "413": "Too large: drainer sends halves of the batch.",
        "default": "Nothing is done. 400, 404, 409, 410, 413, 415 and 422 are the sub-message's"
        " own fault; 502, 503 and 504 an outage; 408, 425, 429 and Retry-After mean later.",
    }
    responses: dict[str, Any] = {each: {"description": text} for each, text in texts.items()}
    responses["200"] = {
        "description": "Results. To a single call, an empty body means done, too.",
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [each["application/json"]["schema"] for each in (answer, single)]
                }
            }
        },
    }
    header = {"in": "header", "required": False, "schema": {"type": "string"}}
    body = {"anyOf": [each["application/json"]["schema"] for each in (item, call)]}
    post = {
        "summary": "Handle one sub-message, or with --set batch=N several.",
        "parameters": [{"name": name, **header} for name in ("Drainer-Id", "Idempotency-Key")],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": responses,
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "A service as drainer's handler", "version": PROTOCOL},
        "paths": {"/": {"post": post}},
        "components": {"schemas": components},
    }


if __name__ == "__main__":
    main()
