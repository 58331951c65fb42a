"""Rules of structure that ruff does not have: no long function, no dead code, and no attribute that
is made after the constructor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import dedent

import pytest

from docs import pages
from docs.pages import ROOT
from scenarios.code_lines import code_lines

LINES_MAX = 60  # of a function, which its docstring and comments don't count in
CALLED_BY_NAME = {  # decorators that leave a function to be called by its name
    *("property", "cached_property", "staticmethod", "classmethod", "contextmanager", "cache"),
    *("asynccontextmanager", "override", "abstractmethod", "lru_cache", "final", "setter"),
}
# By logging, by print, and by the import of a module.
CALLED_BY_OTHERS = {
    *("ClientLog.emit", "LineStream.writelines", "_FromTrusted.get_data"),
}
CONSTRUCTORS = {"__init__", "__new__", "__post_init__"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Product = dict[str, ast.Module]


def parsed(folder: str) -> Iterator[tuple[str, ast.Module]]:
    """Parse the Python files of a folder one after the other; yield them with their paths."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


@pytest.fixture
def product() -> Product:
    return {str(path.relative_to(ROOT)): tree for path, tree in pages.product().items()}


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield functions and classes, by names such as ``Class.method`` and ``outer.inner``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
            yield from definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from definitions(child, prefix)


def test_no_function_is_long(product: Product) -> None:
    for path, tree in (*product.items(), *parsed("tests"), *parsed("scenarios")):
        text = (ROOT / path).read_text("utf-8").splitlines()
        for name, node in definitions(tree):
            own = text[node.lineno - 1 : node.end_lineno]
            if isinstance(node, Function) and len(own) > LINES_MAX:
                lines = code_lines(dedent("\n".join(own)))
                assert lines <= LINES_MAX, f"{path}: {name} has {lines} lines of code"


def test_nothing_is_defined_that_nobody_uses(product: Product) -> None:
    """A name counts as used where code reads it, a page has it as code, or a template has it."""
    read, keywords = read_names(product), set[str]()
    for tree in product.values():
        keywords |= {str(node.arg) for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    known = read | keywords
    ours = {name.rpartition(".")[2] for tree in product.values() for name, _ in definitions(tree)}
    ours |= {"Protocol", "Generic", "NamedTuple", "Exception", "Enum", "StrEnum", "ABC", "Struct"}
    unused = []
    for path, tree in product.items():
        unused += [(path, name) for name in named(tree) if name not in known]
        for _, cls in definitions(tree):
            if isinstance(cls, ast.ClassDef) and {base_of(each) for each in cls.bases} <= ours:
                for node in cls.body:
                    # To set a field is no use of it.
                    used = read if isinstance(node, ast.AnnAssign) else known
                    names = (name for name in named(node) if name not in used)
                    unused += [(path, f"{cls.name}.{name}") for name in names]
    assert {name for _, name in unused} <= CALLED_BY_OTHERS, unused


def read_names(product: Product) -> set[str]:
    read: set[str] = set()
    for tree in product.values():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                    read.add(name)
                case ast.MatchClass():
                    read |= set(node.kwd_attrs)
                case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.:*]+", text):
                    read |= set(re.findall(r"\w+", text))  # "module:name", or that of getattr
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "pyproject.toml"]:
        for code in re.findall(r"```.*?```|`[^`]+`|= .*", page.read_text(), re.DOTALL):
            read |= set(re.findall(r"\w+", code))
    for template in (ROOT / "drainer").rglob("*.html"):
        read |= set(re.findall(r"\w+", template.read_text()))
    return read


def named(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement, or the statements of a module, define for others."""
    match node:
        case ast.Module():
            for each in node.body:
                yield from named(each)
        case ast.FunctionDef() | ast.AsyncFunctionDef() if all(
            base_of(each) in CALLED_BY_NAME for each in node.decorator_list
        ):
            yield from [node.name] if not node.name.startswith("__") else []
        case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign():
            names = (each.id for each in node.targets if isinstance(each, ast.Name))
            yield from (name for name in names if not name.startswith("__"))


def base_of(node: ast.expr) -> str:
    return re.split(r"[\[(]", ast.unparse(node))[0].rpartition(".")[2]


def test_no_attribute_is_made_after_the_constructor(product: Product) -> None:
    found = [cls for tree in product.values() for _, cls in definitions(tree)]
    classes = {cls.name: cls for cls in found if isinstance(cls, ast.ClassDef)}

    def made(cls: ast.ClassDef) -> set[str]:
        bases = [classes[b] for b in map(base_of, cls.bases) if b in classes and b != cls.name]
        return own_attributes(cls).union(*map(made, bases))

    for cls in found:
        stored = isinstance(cls, ast.ClassDef) and {
            node.attr
            for node in ast.walk(cls)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if isinstance(node.value, ast.Name) and node.value.id == "self"
        }
        if isinstance(cls, ast.ClassDef) and stored:
            assert stored <= made(cls), (cls.name, stored - made(cls))


def own_attributes(cls: ast.ClassDef) -> set[str]:
    """Return what a class declares in its body or in ``__slots__``, or its constructor sets."""
    found = {name for node in cls.body for name in named(node)}
    for node in cls.body:
        is_constructor = isinstance(node, Function) and node.name in CONSTRUCTORS
        for each in ast.walk(node):
            match each:
                case ast.Attribute(attr=name) if is_constructor:
                    found.add(name)
                case ast.Constant(value=str(name)) if isinstance(node, ast.Assign):
                    found.add(name)
    return found
