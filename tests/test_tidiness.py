"""Rules of the code that no linter knows: sizes, names, words, dead code, private parts.

``python tests/test_tidiness.py`` prints how many offences each rule has, and those that
``tidy_debt.txt`` does not list. With ``--write`` it writes what is left of that list. A line is
``RULE FILE NAME``, with a count where it is above one. The debt may only shrink: an offence may
move to another file, but none may be added. Where an offence is right, ``EXCEPTIONS`` gives the
reason.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEBT = ROOT / "tests" / "tidy_debt.txt"
EXCEPTIONS: dict[tuple[str, str], str] = {  # by rule, or file, and name: the reason
    ("private-library", "os._exit"): "documented, and meant for what is forked",
    ("private-library", "threading._shutdown"): "no public way ends an interpreter that was forked",
    ("private-library", "atexit._run_exitfuncs"): "the same",
    ("dead-code", "ClientLog.emit"): "logging calls it",
    ("dead-code", "LineStream.writelines"): "part of a stream, as print and libraries use it",
    ("banned-name", "asked_below"): "a field of plans",
    ("banned-name", "asked_by"): "a field of plans",
    ("banned-name", "LockHeld"): "a lock is held, in Kafka's and everybody's words",
    ("many-parameters", "drain"): "keywords of the Python API",
    ("many-parameters", "resume"): "keywords of the Python API",
    ("many-parameters", "estimate"): "keywords of the Python API",
    ("many-parameters", "inspect"): "keywords of the Python API",
    ("many-parameters", "run"): "one record of settings each, which the command line fills",
    ("many-parameters", "redrive"): "the same",
    ("duplicate-function", "drain"): "for programs, on Spark, and the operation itself",
    ("duplicate-function", "estimate"): "for programs, on Spark, and the operation itself",
    ("duplicate-function", "inspect"): "for programs, on Spark, and the operation itself",
    ("duplicate-function", "split"): "for tests of handlers, by the name of their method",
    ("sleep-in-test", "_wait_for"): "a server that starts is polled",
    ("sleep-in-test", "Slow.handle"): "handlers take time",
    ("sleep-in-test", "Slow.open"): "handlers take time",
    ("sleep-in-test", "Slow.split"): "handlers take time",
    ("sleep-in-test", "Recorder.handle"): "handlers take time",
    ("sleep-in-test", "OnTheLoop.handle"): "handlers take time",
    ("sleep-in-test", "OnThreads.handle"): "handlers take time",
    ("sleep-in-test", "BlocksTheLoop.handle"): "handlers take time",
    ("sleep-in-test", "eventually"): "other processes and brokers are polled",
    ("sleep-in-test", "interrupt"): "a process stands still for a while",
    ("sleep-in-test", "interrupt.act"): "a process stands still for a while",
    ("sleep-in-test", "stop_for"): "a process stands still for a while",
    ("sleep-in-test", "stop_for.act"): "a process stands still for a while",
    ("private-product", "_changed_finished"): "a baseline drains without what it clears",
    ("private-product", "_changed_partial"): "a baseline drains without what it clears",
    ("sleep-in-test", "work"): "handlers take time",
    ("sleep-in-test", "work_on_a_thread"): "handlers take time",
    ("drainer/limits/spark/jmx.py", "context._jvm"): "no public way leads to the JVM of a session",
    ("drainer/limits/spark/jmx.py", "context._gateway"): "the same",
    ("drainer/cli/steering.py", "told"): "a property of JSON that programs read",
    ("drainer/view/status.py", "asked"): "the same",
    ("drainer/insight/estimate.py", "held"): "the same",
    ("drainer/insight/inspection.py", "held"): "the same",
    ("drainer/model/account.py", "held"): "a field of plans",
    ("drainer/model/status.py", "held"): "a property of JSON that programs read",
    ("drainer/model/status.py", "settled"): "the same",
    ("drainer/policy/redrive.py", "asked"): "the same",
    ("private-library", "sys._current_frames"): "documented, for debuggers",
}

LINES_MAX = 60  # of a function, without its docstring
PARAMETERS_MAX = 8

# One verb for each act: a component reports, a user requests, a terminal prints, a check ensures.
_WORDS = """
    tell tells told telling untold teller say says said saying ask asks asked asking asker
    hear hears heard hearing unheard insist insists insisted heed heeds heeded heeding
    nobody anybody anybodys mend mends mended mending wing wings house
"""
BANNED_WORDS = frozenset(_WORDS.split())
_IN_NAMES = "hold holds held unhold settle settled doubtful"  # which a sentence may contain
BANNED_IN_NAMES = BANNED_WORDS | set(_IN_NAMES.split())
# Names for which the field has a standard term.
_NAMES = """
    HeldBack Judge Starter resting come_to_rest look_again looked_at_all Passed Fate Fates
    join_fates or_worse elsewhere Elsewhere place_of Places Classes FirstDispatcher LaneFilter
    Turn Bundle Bundler Measures Loans Lent BorrowingDrain Given Handling Streams Dealt anew
    goes_on going_on concluded left_alone take_back set_aside Deed Talk What How HowLong
    Failing Watching keep_up uptime_s both Shown
"""
BANNED_NAMES = frozenset(_NAMES.split())
# A docstring begins with a verb or a noun, never with what leans on another sentence or name.
_STARTS = """
    Those That This These It Its What Who Whose Which How Where Why If As Whatever Whoever
    Like They Such So And But Or
"""
NOT_FIRST = frozenset(_STARTS.split())
DECORATORS = {  # whose functions are called by their names; others hand the function to something
    "property", "cached_property", "staticmethod", "classmethod", "contextmanager", "cache",
    "asynccontextmanager", "override", "abstractmethod", "lru_cache", "final", "setter",
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of Python, parsed."""

    path: str
    text: str
    tree: ast.Module

    @property
    def in_product(self) -> bool:
        return self.path.startswith("drainer/")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function, by its name within the file: ``Class.method`` or ``outer.inner``."""
        return [(n, d) for n, d in self.definitions if isinstance(d, Function)]

    @cached_property
    def definitions(self) -> list[tuple[str, Function | ast.ClassDef]]:
        return list(_definitions(self.tree, ""))

    @cached_property
    def private_names(self) -> set[str]:
        """Names with one leading underscore that this file defines or assigns."""
        return {name for name, _ in _defined(self) if _is_private(name)}

    @cached_property
    def foreign_privates(self) -> list[tuple[str, str]]:
        """Private names that this file uses and does not define, each with its owner as written."""
        return list(_foreign_privates(self))

    @cached_property
    def docstrings(self) -> list[tuple[str, ast.Constant]]:
        """Docstrings by the name of their definition; the file's own has the name ``module``."""
        found = []
        for name, node in [("module", self.tree), *self.definitions]:
            first = node.body[0] if node.body else None
            match first:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    found.append((name, text))
        return found


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression
            yield from _definitions(child, prefix)


def _defined(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Every name that the code defines: definitions, parameters, variables and attributes."""
    for node in module.nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.arg():
                yield node.arg, node
            case ast.Name(ctx=ast.Store()):
                yield node.id, node
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node
            case ast.Assign(targets=[ast.Name(id="__slots__")]):
                for each in ast.walk(node.value):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield each.value, each


def _is_private(name: str) -> bool:
    """Whether it has one underscore in front, other than methods of named tuples."""
    one = name[:1] == "_" and name[1:2] not in {"", "_"}
    return one and name not in {"_replace", "_asdict", "_fields"}


def _own_fields(cls: ast.ClassDef) -> set[str]:
    """Attributes that a class declares in its body, or that its constructor sets."""
    found: set[str] = set()
    for node in cls.body:
        if isinstance(node, Function) and node.name in {"__init__", "__new__", "__post_init__"}:
            found |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        else:
            nodes = [node] if isinstance(node, ast.ClassDef | Function) else ast.walk(node)
            for each in nodes:
                match each:
                    case ast.Name():
                        found.add(each.id)
                    case ast.Constant(value=str() as name):  # of __slots__
                        found.add(name)
                    case ast.FunctionDef() | ast.AsyncFunctionDef():
                        found.add(each.name)
    return found


@cache
def modules() -> list[Module]:
    """The product, its tests and its scenarios."""
    paths = [
        path for top in ("drainer", "tests", "scenarios") for path in (ROOT / top).rglob("*.py")
    ]
    texts = ((path.relative_to(ROOT).as_posix(), path.read_text()) for path in sorted(paths))
    return [Module(path, text, ast.parse(text)) for path, text in texts]


def product() -> list[Module]:
    return [module for module in modules() if module.in_product]


# --- the rules, each of which gives the file and the name of every offence

Offences = Iterator[tuple[str, str]]


def long_function() -> Offences:
    for module in modules():
        docs = dict(module.docstrings)
        for name, node in module.functions:
            doc = docs.get(name)
            lines = (node.end_lineno or 0) - node.lineno + 1
            lines -= 0 if doc is None else (doc.end_lineno or 0) - doc.lineno + 1
            if lines > LINES_MAX:
                yield module.path, name


def many_parameters() -> Offences:
    for module in modules():
        for name, node in module.functions:
            of = node.args
            count = len([*of.posonlyargs, *of.args, *of.kwonlyargs])
            count -= bool(of.args) and of.args[0].arg in {"self", "cls"}
            if count > PARAMETERS_MAX:
                yield module.path, name


def duplicate_class() -> Offences:
    """Classes and aliases of one public name in several modules of the product."""
    yield from _duplicates(lambda name: name[0].isupper())


def duplicate_function() -> Offences:
    """Functions of one public name in several modules of the product, commands aside."""
    yield from _duplicates(lambda name: name[0].islower())


def _duplicates(wanted: Callable[[str], bool]) -> Offences:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for module in product():
        for node in module.tree.body:
            match node:
                case ast.ClassDef():
                    places[node.name].add(module.path)
                case ast.FunctionDef() if re.search(r"\bcli\b", module.path) is None:
                    places[node.name].add(module.path)
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ) if re.fullmatch(r"[A-Z][a-z]\w*", name):
                    places[name].add(module.path)
    for name, paths in places.items():
        if len(paths) > 1 and not name.startswith("_") and wanted(name):
            yield from ((path, name) for path in paths)


def dead_code() -> Offences:
    """Names of the product that neither it nor a page uses, and fields that it only sets."""
    read = _read_names()
    used = read | {n.arg for m in product() for n in m.nodes if isinstance(n, ast.keyword)}
    for module in product():
        for node in module.tree.body:
            yield from ((module.path, name) for name in _named(node) if name not in used)
        for _, cls in module.definitions:
            if isinstance(cls, ast.ClassDef) and _bases_are_ours(cls):
                for node in cls.body:
                    seen = read if isinstance(node, ast.AnnAssign) else used
                    names = (name for name in _named(node) if name not in seen)
                    yield from ((module.path, f"{cls.name}.{name}") for name in names)


def _named(node: ast.stmt) -> list[str]:
    """Names that a statement defines for others to use by name."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            decorators = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
            by_name = all(each.rpartition(".")[2] in DECORATORS for each in decorators)
            names = [node.name] if by_name else []
        case ast.ClassDef():
            names = [node.name]
        case ast.Assign():
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            names = [name]
        case _:
            names = []
    return [name for name in names if not name.startswith("__")]


def _bases_are_ours(cls: ast.ClassDef) -> bool:
    """Whether nothing outside the product calls a method of the class by its name."""
    plain = {"Protocol", "Generic", "NamedTuple", "Exception", "Enum", "StrEnum", "ABC", "Struct"}
    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in cls.bases]
    return all(base in _our_names() | plain for base in bases)


@cache
def _our_names() -> frozenset[str]:
    return frozenset(
        name.rpartition(".")[2] for module in product() for name, _ in module.definitions
    )


@cache
def _read_names() -> frozenset[str]:
    read: set[str] = set()
    for module in product():
        docs = {id(node) for _, node in module.docstrings}
        for node in module.nodes:
            match node:
                case ast.Name(ctx=ast.Load()):
                    read.add(node.id)
                case ast.Attribute(ctx=ast.Load()):
                    read.add(node.attr)
                case ast.MatchClass():
                    read |= set(node.kwd_attrs)
                case ast.Constant(value=str() as text) if id(node) not in docs:
                    if re.fullmatch(r"[\w.:*]+", text):  # "module:name", or getattr's
                        read |= set(re.findall(r"\w+", text))
    templates = [
        path for path in (ROOT / "drainer").rglob("*.*") if path.suffix in {".html", ".j2"}
    ]
    for template in templates:
        read |= set(re.findall(r"\w+", template.read_text()))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "pyproject.toml"]
    for page in pages:
        for code in re.findall(r"```.*?```|`[^`]+`|= .*", page.read_text(), re.DOTALL):
            read |= set(re.findall(r"\w+", code))
    return frozenset(read)


def late_attribute() -> Offences:
    """Attributes that are made after the constructor of their class."""
    classes = {
        node.name: node
        for module in product()
        for _, node in module.definitions
        if isinstance(node, ast.ClassDef)
    }

    def fields(cls: ast.ClassDef) -> set[str]:
        bases = (ast.unparse(base).partition("[")[0] for base in cls.bases)
        above = (fields(classes[base]) for base in bases if base in classes and base != cls.name)
        return _own_fields(cls).union(*above)

    for module in product():
        for _, cls in module.definitions:
            if not isinstance(cls, ast.ClassDef):
                continue
            known = fields(cls)
            late = {
                node.attr
                for node in ast.walk(cls)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if isinstance(node.value, ast.Name) and node.value.id == "self"
            }
            yield from ((module.path, f"{cls.name}.{name}") for name in late - known)


def cast_any() -> Offences:
    for module in product():
        for name, node in module.functions:
            for call in ast.walk(node):
                match call:
                    case ast.Call(func=ast.Name(id="cast"), args=[kind, _]):
                        if re.search(r"\bAny\b", ast.unparse(kind)):
                            yield module.path, name


def private_product() -> Offences:
    """Private names of another module of the product, used in it or in a test."""
    ours = frozenset[str]().union(*(module.private_names for module in product()))
    for module in modules():
        for name, owner in module.foreign_privates:
            if name in ours and owner.partition(".")[0] not in sys.stdlib_module_names:
                yield module.path, name


def private_library() -> Offences:
    """Private parts of libraries."""
    ours = frozenset[str]().union(*(module.private_names for module in modules()))
    for module in modules():
        for name, owner in module.foreign_privates:
            library = owner.partition(".")[0] in sys.stdlib_module_names
            if name not in ours or library:
                yield module.path, f"{owner}.{name}".lstrip(".")
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                module_name = node.module or ""
                if re.search(r"(^|\.)_[a-z]", module_name) and module_name != "_typeshed":
                    yield module.path, module_name


def _foreign_privates(module: Module) -> Iterator[tuple[str, str]]:
    own = module.private_names
    for node in module.nodes:
        match node:
            case ast.ImportFrom():
                for alias in node.names:
                    if _is_private(alias.name):
                        yield alias.name, node.module or ""
            case ast.Attribute(value=owner, attr=name) if _is_private(name) and name not in own:
                written = ast.unparse(owner)
                if re.match(r"(self|cls|KafkaError|super\(.*\))$", written) is None:
                    yield name, written if re.fullmatch(r"[\w.]+", written) else ""
            case ast.Call(args=[_, ast.Constant(value=str() as name), *_], func=func) if (
                _is_private(name) and name not in own
            ):
                if re.search(r"(get|set|del|has)attr$", ast.unparse(func)):
                    yield name, ""
            case ast.Constant(value=str() as text) if "._" in text and re.fullmatch(
                r"drainer(\.\w+)*\._\w+", text
            ):
                yield text.rpartition(".")[2], "drainer"


def banned_name() -> Offences:
    """Identifiers with a word that is no term, or with a name that a standard one replaces."""
    for module in modules():
        file = module.path.rpartition("/")[2].removesuffix(".py")
        if BANNED_IN_NAMES & set(_words(file)):
            yield module.path, file
        for name, node in _defined(module):
            if isinstance(node, Function) and name.startswith("test_"):
                continue  # a sentence, as a docstring is
            if name in BANNED_NAMES or BANNED_IN_NAMES & set(_words(name)):
                yield module.path, name


def _words(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def banned_word() -> Offences:
    """Words in docstrings, messages, comments, plain identifiers and the names of tests."""
    for module in modules():
        if module.path != "tests/test_tidiness.py":
            text = re.sub(r"def test_\w+", lambda name: name[0].replace("_", " "), module.text)
            for word in re.findall(r"\b[a-z]+\b", text.lower()):
                if word in BANNED_WORDS:
                    yield module.path, word


def docstring_start() -> Offences:
    for module in modules():
        for name, node in module.docstrings:
            first = re.match(r"[\w']+", str(node.value).strip())
            if first is not None and first[0] in NOT_FIRST:
                yield module.path, name


def sleep_in_test() -> Offences:
    for module in modules():
        for name, node in module.functions if module.path.startswith("tests/") else ():
            for call in ast.walk(node):
                match call:
                    case ast.Call(args=[ast.Constant(value=0)]):
                        pass  # which only lets others run
                    case ast.Call(
                        func=ast.Name(id="sleep")
                        | ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep")
                    ):
                        yield module.path, name


RULES: tuple[Callable[[], Offences], ...] = (
    long_function,
    many_parameters,
    duplicate_class,
    duplicate_function,
    dead_code,
    late_attribute,
    cast_any,
    private_product,
    private_library,
    banned_name,
    banned_word,
    docstring_start,
    sleep_in_test,
)

# --- what is there, and what is listed

Line = tuple[str, str, str]  # rule, file, name


@cache
def found() -> Counter[Line]:
    """Offences by all rules, exceptions among them, with how often each occurs."""
    return Counter(
        (rule.__name__.replace("_", "-"), path, name) for rule in RULES for path, name in rule()
    )


def offences() -> Counter[Line]:
    """Every offence that is no exception, with how often it occurs."""
    return Counter(
        {line: n for line, n in found().items() if not {line[::2], line[1:]} & EXCEPTIONS.keys()}
    )


def read_debt() -> Counter[Line]:
    debt: Counter[Line] = Counter()
    for line in DEBT.read_text().splitlines():
        rule, path, name, *count = line.split()
        debt[rule, path, name] = int(*count or ["1"])
    return debt


def write_debt() -> None:
    """Write what is left of the debt, wherever it moved; nothing that was added."""
    known, more = read_debt(), set(added())
    left = Counter(
        {
            line: min(count, known[line]) if " ".join(line) in more else count
            for line, count in offences().items()
        }
    )
    lines = ((*line, *([str(count)] if count > 1 else [])) for line, count in (+left).items())
    DEBT.write_text("".join(" ".join(line) + "\n" for line in sorted(lines)))


def added() -> list[str]:
    """Offences beyond the debt, wherever those moved that it lists."""
    known = read_debt()
    more = _by_name(offences()) - _by_name(known)
    return [
        " ".join(line)
        for line, count in sorted(offences().items())
        if count > known[line] and _name(line) in more
    ]


def _by_name(lines: Counter[Line]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for line, count in lines.items():
        found[_name(line)] += count
    return found


def _name(line: Line) -> tuple[str, str]:
    """Rule and name of an offence, which stay when the code moves; of a docstring only the rule."""
    rule, _, name = line
    return rule, "" if rule == "docstring-start" else name.rpartition(".")[2]


def test_the_code_is_tidy_and_every_exception_needed() -> None:  # one test: it reads all files
    gc.disable()  # it would go through a million nodes again and again
    try:
        more = "\n".join(added())
    finally:
        modules.cache_clear()
        gc.enable()
    assert not more, f"not in tests/{DEBT.name}:\n{more}"
    assert not EXCEPTIONS.keys() - {each for line in found() for each in (line[::2], line[1:])}
    assert not read_debt() - offences(), "run this file with --write"


def test_rules_see_what_they_are_for() -> None:
    tree = ast.parse("class A:\n def __init__(self): self.a = 1\n def f(self): self.b = 2\n")
    assert _own_fields(tree.body[0]) == {"a", "f"}  # type: ignore[arg-type]
    assert _words("toldSince_HTTPServer") == ["told", "since", "http", "server"]


def main() -> int:
    if "--write" in sys.argv:
        write_debt()
    counts = Counter(rule for rule, _, _ in offences().elements())
    before = Counter(rule for rule, _, _ in read_debt().elements())
    for rule in RULES:
        name = rule.__name__.replace("_", "-")
        print(f"{name:16} {counts[name]:5}  listed: {before[name]}")
    print(*added(), sep="\n")
    return bool(added())


if __name__ == "__main__":
    sys.exit(main())
