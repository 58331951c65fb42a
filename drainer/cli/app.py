"""The command ``drainer``: its commands, its own options, and errors that precede a command."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from drainer import __version__
from drainer.cli import end_interrupted
from drainer.cli.declared import Declared, commands_of, declared_by, is_given, meant, value_of
from drainer.cli.parameter import Command, Group, completing, declare, keyword
from drainer.errors import DrainerError, UsageError
from drainer.model.listed import listed
from drainer.model.option import Option, option, options_of

# The callback or group of each command. The help shows the panels and commands in this order.
PANELS = {
    "Before": {
        "probe": "drainer.probe.cli:probe_",
        "lag": "drainer.lags.cli:lag",
        "inspect": "drainer.insight.cli.inspect:inspect",
        "estimate": "drainer.insight.cli.estimate:estimate",
        "certify": "drainer.certify.cli:certify",
        "limits": "drainer.limits.cli:limits",
    },
    "Drain": {
        "run": "drainer.cli.run:run",
        "resume": "drainer.cli.resume:resume",
        "job": "drainer.job.cli.job:job",
    },
    "Steer": {
        "ps": "drainer.cli.steering:ps",
        "watch": "drainer.cli.steering:watch",
        "set": "drainer.cli.steering:set_",
        "pause": "drainer.cli.steering:pause",
        "unpause": "drainer.cli.steering:unpause",
        "stop": "drainer.cli.steering:stop",
    },
    "After": {
        "plan": "drainer.cli.plan:app",
        "dead": "drainer.letters.cli.dead:app",
        "redrive": "drainer.letters.cli.redrive:redrive",
    },
    "Setup": {
        "sandbox": "drainer.sandbox.cli:app",
        "spark": "drainer.spark.cli:app",
        "demo": "drainer.demo.cli:demo",
    },
}

# A command that connects to a cluster needs one of these.
_CLUSTER = ("bootstrap_server", "client_config", "client_property")
# What other tools call `ps`.
_OTHER_NAMES = dict.fromkeys(("status", "list", "ls"), "ps")


class LazyCommands(Mapping[str, Any]):
    """The commands by name. A command is imported and made when somebody first asks for it."""

    def __init__(self) -> None:
        self._panels = {name: panel for panel, names in PANELS.items() for name in names}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            panel = self._panels[name]
            module, _, callback = PANELS[panel][name].partition(":")
            # Modules that are being loaded leave no garbage, and to search for it would take a
            # fifth of the time that a command needs to start.
            gc.disable()
            try:
                found = getattr(import_module(module), callback)
                self._made[name] = _made(name, found, panel)
            finally:
                gc.enable()
            gc.freeze()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._panels)

    def __len__(self) -> int:
        return len(self._panels)


class Commands(Group):
    """The group of all commands. It loads only the command that was typed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def make_context(self, info_name: Any, args: list[str], *more: Any, **extra: Any) -> Any:
        with _answering(args.copy()):
            return super().make_context(info_name, args, *more, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _answering(ctx.args):
            return super().invoke(ctx)


@contextmanager
def _answering(args: list[str]) -> Iterator[None]:
    """Print errors that come before the command begins in the form of the command's own errors."""
    try:
        yield
    except KeyboardInterrupt:  # Typer would end without a word.
        end_interrupted()
    except (DrainerError, typer.TyperException) as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # Its text is the help, which typer prints.
            raise
        # --help must not wait for this import, which takes half as long as --help itself.
        from drainer.cli.answer import reporting_errors  # noqa: PLC0415
        from drainer.view.terminal import Form, Terminal  # noqa: PLC0415

        found = re.search(r"(?:^| )(?:-o|--output)[ =]?(json|yaml)\b", " ".join(args))
        with reporting_errors(Terminal(found and Form(found[1]))):
            raise error if isinstance(error, DrainerError) else usage_error(error) from None


def usage_error(error: typer.TyperException) -> UsageError:
    """Return the error of drainer that replaces one of typer's.

    If several options are missing, it names all of them at once.
    """
    return _missing(error) if type(error).__name__ == "MissingParameter" else _wrong(error)


def _wrong(error: Any) -> UsageError:
    context = error.ctx
    param: Any = getattr(error, "param", None)
    text, _, near = error.message.rstrip(".?").partition(". Did you mean ")
    text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected: \1", text)
    text = text.removeprefix("Value error, ")
    text = f"{text[:1].lower()}{text[1:]}"
    declared = declared_by(context.command)
    if param is not None and (option := declared.get(param.name)) is not None:
        place, _ = value_of(context, option)
        text = f"{' '.join(filter(None, (option.word, place)))}: {text}"
    named = getattr(error, "option_name", "")
    is_unknown = type(error).__name__ == "NoSuchOption"
    if is_unknown and (option := meant(named.strip("-"), declared.values())):
        near = option.word
    root = context.find_root()
    if unknown := re.fullmatch(r"no such command '(.*)'", text):
        found = _commands_named({unknown[1], _OTHER_NAMES.get(unknown[1], "")}, root.command)
        near = " or ".join(f"`drainer {each}`" for each in found) or near
    hint = f"Did you mean {near}?" if near else f"See `{context.command_path} --help`."
    if context is not root and any(named in each.opts for each in root.command.params):
        hint = f"Put it before the command: `{root.command_path} {named} …`."
    if context.info_name == "resume" and (option := _fixed_by_plan(named, declared)):
        hint = (
            f"The plan fixes {option.word}: leave it out. To change it, start again"
            " with `drainer run` and another --plan. It starts at the committed offset, and repeats"
            " what is done above it."
        )
    return UsageError(text, hint=hint)


def _fixed_by_plan(name: str, of_resume: Declared) -> Option | None:
    """Return the option of this name by which `run` says what to drain, if a resume lacks it."""
    from drainer.cli.options import DrainOptions  # noqa: PLC0415 - only this error needs them

    of_run = options_of(DrainOptions).values()
    fixed = [each for each in of_run if each.parameter not in of_resume]
    return next((each for each in fixed if name in (each.name, each.short)), None)


def _commands_named(names: set[str], group: Any) -> Iterator[str]:
    """Yield the commands of these names in a group and below it, with the groups between."""
    for name, command in commands_of(group).items():
        if name in names:
            yield name
        yield from (f"{name} {below}" for below in _commands_named(names, command))


def _missing(error: Any) -> UsageError:
    context, declared = error.ctx, declared_by(error.ctx.command)
    required = [each for each in declared.values() if each.default is ...]
    missing = [each for each in required if not is_given(context, each)]
    plan = str(context.params.get("plan"))
    if "settings" in declared and "=" in plan and not os.path.exists(plan):  # noqa: PTH110
        missing = [declared["plan"]]  # `drainer set concurrency=10` has no plan.
    # A command that requires only a plan gets the cluster from the plan.
    if any(not each.is_argument for each in required):
        cluster = [declared[name] for name in _CLUSTER if name in declared]
        if cluster and not any(is_given(context, each) for each in cluster):
            missing.append(cluster[0])
    typed = " ".join(
        each.word if each.is_argument else f"{each.word} {each.typed_as}" for each in missing
    )
    hint = f"Add {typed}: see `{context.command_path} --help`."
    if (plan_option := declared.get("plan")) in missing:
        plans = completing(plan_option.proposes or "")(context, "")
        plans.sort(key=os.path.isabs)  # Those in this folder come first.
        known = f" {plan_option.word} is one of {listed(plans)}." if plans else ""
        hint += f"{known} `drainer ps` lists the drains of this machine."
    return UsageError(f"missing {', '.join(each.word for each in missing)}", hint=hint)


def _made(name: str, found: Any, panel: str) -> Any:
    holder = typer.Typer(rich_markup_mode="markdown", callback=lambda: None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = Command
        holder.add_typer(found, name=name, cls=Group, rich_help_panel=panel)
    else:
        holder.command(name, cls=Command, rich_help_panel=panel)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="drainer",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """Options of the program, which a person types before any command."""

    quiet: bool = option("Print only warnings and errors.", False, short="-q")
    debug: bool = option("Show tracebacks.", False)


def _use_profile(context: typer.Context, name: str | None) -> str | None:
    # --help must not wait for this import, which takes half as long as --help itself.
    from drainer.cli.profile import use_profile  # noqa: PLC0415

    use_profile(context, name)
    return name


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drainer {__version__}")
        raise typer.Exit


_profile: Any = typer.Option(
    "--profile",
    callback=_use_profile,
    is_eager=True,
    metavar="NAME|FILE",
    autocompletion=completing("profile"),
    help="Read option values from this profile. Default: the profile `default`, if there is one.",
)
_version: Any = typer.Option(
    "--version",
    callback=_print_version,
    is_eager=True,
    allow_from_autoenv=False,
    help="Print the version.",
)


def drainer(**_: Any) -> None:
    """Drain a stuck Kafka backlog before the deadline.

    drainer keeps the order of each sub-key and loses no data. It checks before it acts and shows
    its progress. If it is killed, it resumes from its plan. At the end it checks that every message
    is accounted for.

    Exit codes: 0 done, 1 unexpected error, 2 wrong usage, 3 refused (nothing touched),
    4 interrupted (resume with the plan), 5 halted by the failure policy (resume with the plan),
    6 done, but with dead letters, failed sub-messages or lost records, 7 a check failed, 8 ended
    early and can't be resumed as is, 9 --only is done, except for sub-messages that wait for the
    rest.
    """


declare(
    drainer,
    options_of(ProgramOptions).values(),
    keyword("profile", Annotated[str | None, _profile], None),
    keyword("version", Annotated[bool, _version], False),
)
app.callback()(drainer)


def main() -> None:
    """Run the command line of this process, on streams that outlive a closed pipe."""
    from drainer.view.streams import flush_streams, install_streams  # noqa: PLC0415

    out, _ = install_streams()
    try:
        app()
    finally:
        flush_streams(out)
