"""Writes ``docs/reference/cli``: a page for each command, with all of its options.

Run it as ``python docs/generate.py``; a test compares what it would write with what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.main import get_command

from drainer.cli.app import PANELS, app
from drainer.cli.help import options_of

FOLDER = Path(__file__).parent / "reference/cli"
HEAD = "option | meaning | default | variable | profile key\n---|---|---|---|---"


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its words."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield " ".join(words), command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


def tables(command: Any) -> str:
    """The arguments and options of a command, a table for each panel of its help."""
    declared = options_of(command)
    panels: dict[str, list[str]] = {"": [HEAD]}
    for param in command.params:
        panel = getattr(param, "rich_help_panel", None) or ""
        panels.setdefault(panel, [f"**{panel}**\n\n{HEAD}"]).append(
            row(param, declared.get(param.name))
        )
    return "\n\n".join("\n".join(lines) for lines in panels.values() if len(lines) > 1)


def row(param: Any, declared: Any) -> str:
    """What is to be known of an option or argument, as a line of a table."""
    is_option = param.opts[0].startswith("-")
    names = ", ".join(f"`{name}`" for name in sorted({*param.opts, *param.secondary_opts}, key=len))
    if not is_option:
        names = f"`{param.metavar or param.name}`"
    elif not param.is_flag and (metavar := param.metavar or type_of(param)):
        names = f"{names[:-1]} {metavar}`"
    meaning, _, default = (declared or param).help.rstrip().partition(" Default: ")
    default = "required" if param.required else default.removesuffix(".") or default_of(param)
    variable = param.envvar if is_option else None
    coded = (f"`{each}`" if each else "" for each in (variable, declared and declared.key))
    return " | ".join(
        each.replace("|", "\\|") for each in (names, meaning, default, *coded)
    ).rstrip()


def type_of(param: Any) -> str:
    """The values of an option that has no word for them: an enumeration."""
    kind = param.type_descriptor.annotation
    kind = next((each for each in getattr(kind, "__args__", ()) if each is not type(None)), kind)
    return "|".join(each.value for each in kind)


def default_of(param: Any) -> str:
    value = param.default.value if isinstance(param.default, Enum) else param.default
    is_flag = getattr(param, "is_flag", False)
    return "" if is_flag or value in (None, "", ()) else str(value)


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
    made["index"] += ["## drainer", "These options stand before the command.", tables(root)]
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


if __name__ == "__main__":
    main()
