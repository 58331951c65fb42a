"""Writes ``docs/reference/cli``: a page for each command, and one for the options they share.

Run it as ``python docs/generate.py``; a test compares what it would write with what is there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.main import get_command

from drainer.cli.app import app

FOLDER = Path(__file__).parent / "reference/cli"
LEFT_OUT = ("--help", "--help-all")

Row = tuple[str, str]  # how an option is typed; what it does


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its words."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield " ".join(words), command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


def rows(command: Any) -> dict[Row, str]:
    """The arguments and options of a command with their panels."""
    declared = getattr(command.callback, "options", {})
    return {
        row(param, declared.get(param.name)): getattr(param, "rich_help_panel", None) or ""
        for param in command.params
        if not param.hidden and not set(param.opts) & set(LEFT_OUT)
    }


def row(param: Any, declared: Any) -> Row:
    names = ", ".join(f"`{name}`" for name in sorted({*param.opts, *param.secondary_opts}, key=len))
    if not param.opts[0].startswith("-"):
        names = f"`{param.metavar or param.name}`"
    elif not param.is_flag and (metavar := param.metavar or type_of(param)):
        names = f"{names[:-1]} {metavar}`"
    said = (declared.help if declared else param.help).rstrip()
    if param.required:
        said += " Required."
    elif (default := default_of(param)) and "Default:" not in said:
        said += f" Default: {default}."
    return names.replace("|", "\\|"), said.replace("|", "\\|")


def type_of(param: Any) -> str:
    """The values of an option that has no word for them: an enumeration."""
    kind = param.type_descriptor.annotation
    kind = next((each for each in getattr(kind, "__args__", ()) if each is not type(None)), kind)
    return "|".join(each.value for each in kind)


def default_of(param: Any) -> str:
    value = param.default.value if isinstance(param.default, Enum) else param.default
    is_flag = getattr(param, "is_flag", False)
    return "" if is_flag or value in (None, "", ()) else str(value)


def table(found: list[Row]) -> str:
    lines = [f"{names} | {said}" for names, said in found]
    return "\n".join(["option | what it does", "---|---", *lines])


def anchor(panel: str) -> str:
    return re.sub(r"[^\w\- ]", "", panel.lower()).replace(" ", "-")


def described(help_text: str) -> str:
    """The docstring, with its examples as code."""
    text = "\n".join(line.strip() for line in help_text.strip().splitlines())
    before, *after = re.split(r"^Examples?:", text, maxsplit=1, flags=re.MULTILINE)
    examples = re.findall(r"`(drainer .+?)`", "".join(after))
    lines = "".join(f"$ {example}\n" for example in examples)
    return f"{before}```console\n{lines}```" if examples else text


def pages() -> dict[str, str]:
    """The text of each file by its name."""
    root: Any = get_command(app)
    found = {words: (each, rows(each)) for words, each in leaves(root, ())}
    times = Counter(one for _, options in found.values() for one, panel in options.items() if panel)
    panels: dict[Row, str] = {}
    for _, options in found.values():
        for one, panel in options.items():
            panels.setdefault(one, panel)
    shared: dict[str, list[Row]] = {}
    for one, panel in panels.items():
        if times[one] > 1:
            shared.setdefault(panel, []).append(one)

    made: dict[str, list[str]] = {}
    for words, (command, options) in found.items():
        name = words.split()[0]
        parts = made.setdefault(name, [])
        level = "#" if not parts and words == name else "##"
        if not parts and words != name:
            parts.append(f"# drainer {name}\n\n{described(root.commands[name].help)}")
        parts.append(f"{level} drainer {words}\n\n{described(command.help)}")
        if own := [one for one in options if times[one] < 2]:
            parts.append(table(own))
        links: dict[str, list[str]] = {}
        for one in options:
            if times[one] > 1:
                links.setdefault(panels[one], []).append(bare(one))
        if links:
            lines = (
                f"- [{panel}](options.md#{anchor(panel)}): {', '.join(names)}"
                for panel, names in links.items()
            )
            parts.append("Shared options:\n\n" + "\n".join(lines))
    summary = {name: root.commands[name] for name in made}
    index = ["command | what it does", "---|---"]
    index += [f"[{name}]({name}.md) | {line_of(each)}" for name, each in summary.items()]
    made["index"] = [
        "# Commands",
        "Options that several commands take stand in [Shared options](options.md).",
        "\n".join(index),
    ]
    made["options"] = [
        "# Shared options",
        "Most options can also be given by an environment variable, made of the name:"
        " `--client-config` by `DRAINER_CLIENT_CONFIG`. See [Configuration](../configuration.md).",
        *(f"## {panel}\n\n{table(options)}" for panel, options in shared.items()),
    ]
    return {f"{name}.md": "\n\n".join(parts) + "\n" for name, parts in made.items()}


def bare(one: Row) -> str:
    """Its name alone, as people say it."""
    names = re.findall(r"`(-[-\w]+)", one[0])
    return f"`{max(names, key=lambda name: (not name.startswith('--no-'), len(name)))}`"


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


if __name__ == "__main__":
    main()
