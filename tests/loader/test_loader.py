"""Finding a handler by its reference: every form it may have, and every way to get it wrong."""

from __future__ import annotations

import abc
import asyncio
import hashlib
import importlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from drainer import handlers
from drainer.api import handler_of
from drainer.core.batches import BatchOf
from drainer.errors import DrainerError, Refused, UsageError
from drainer.handler import Context, Handler
from drainer.handlers import Count, Print
from drainer.loading.importing import OWN_NAME
from drainer.loading.loader import LoadedHandler, foreign_code, load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model.terms import PayloadSettings
from privileges import UNPRIVILEGED, for_root, without_privileges
from store.plans import PLAN

CONTEXT = Context("orders", "billing", "drain", 7, {"url": "http://x"})
MESSAGE = Message(Origin("orders", "id", 0), 5, b"key", b"value")

CLASS = """
    from __future__ import annotations
    from dataclasses import dataclass
    import drainer

    @dataclass  # which looks its module up
    class Reindex(drainer.Handler):
        url: str = "http://x"

        def split(self, message):
            yield drainer.SubMessage("from the class")

        async def handle(self, sub):
            return "handled"
"""

FUNCTIONS = """
    import drainer

    seen = []

    def open(context):
        seen.append(context)

    def split(message):
        return [drainer.SubMessage("from the function")]

    async def handle(sub):
        return "handled"

    async def close():
        seen.append("closed")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = dict(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def write(path: str, code: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(code))
    return file


def keys_of(handler: LoadedHandler) -> list[object]:
    assert handler.split is not None
    return [sub.key for sub in handler.split(MESSAGE)]


# The forms.


@pytest.mark.parametrize(
    ("path", "reference"),
    [
        ("orders.py", "orders:Reindex"),
        ("orders.py", "orders"),
        ("orders.py", "orders.py:Reindex"),
        ("orders.py", "./orders.py:Reindex"),
        ("orders.py", "orders.py"),
        ("deep/down/orders.py", "deep/down/orders.py:Reindex"),
        ("shop/orders.py", "shop.orders:Reindex"),
        ("a folder/with:colon/orders.py", "a folder/with:colon/orders.py:Reindex"),
        ("not-a-name.py", "not-a-name.py:Reindex"),
    ],
)
def test_a_class_is_found(path: str, reference: str) -> None:
    write(path, CLASS)

    handler = load_handler(reference)

    assert handler.reference == reference
    assert handler.is_async
    assert keys_of(handler) == ["from the class"]


@pytest.mark.parametrize("reference", ["orders.py", "orders", "shop.orders", "shop/orders.py"])
def test_functions_are_a_handler(reference: str) -> None:
    write("orders.py", FUNCTIONS)
    write("shop/orders.py", FUNCTIONS)

    handler = load_handler(reference)

    assert handler.is_async
    assert keys_of(handler) == ["from the function"]
    asyncio.run(handler.open(CONTEXT))
    asyncio.run(handler.close())
    module = sys.modules[handler.handle.__module__]
    assert module.seen == [CONTEXT, "closed"]


@pytest.mark.parametrize(("name", "kind"), [("print", Print), ("count", Count)])
def test_the_built_in_handlers_have_names(name: str, kind: type[Handler]) -> None:
    handler = load_handler(name)

    assert type(handler.handle.__self__) is kind  # type: ignore[attr-defined]
    assert handler.is_async
    assert handler.split is None
    assert handler.absolute_reference == name


def test_an_instance_and_a_nested_name_are_found() -> None:
    write(
        "orders.py",
        """
        import drainer

        class Shop:
            class Reindex(drainer.Handler):
                def __init__(self, name="by default"):
                    self.name = name

                def handle(self, sub):
                    return self.name

        made = Shop.Reindex("made by hand")
        """,
    )
    sub = SubMessage("a")

    assert load_handler("orders:made").handle(sub) == "made by hand"
    assert load_handler("orders.py:Shop.Reindex").handle(sub) == "by default"


def test_a_class_that_only_looks_like_a_handler_is_one() -> None:
    write("orders.py", "class Duck:\n    def handle(self, sub): ...\n")

    handler = load_handler("orders:Duck")

    assert not handler.is_async
    assert handler.split is None
    asyncio.run(handler.open(CONTEXT))
    asyncio.run(handler.close())


def test_a_file_imports_its_neighbours() -> None:
    write("shop/prices.py", "PRICE = 7")
    write("shop/orders.py", "from prices import PRICE\ndef handle(sub): return PRICE")

    assert load_handler("shop/orders.py").handle(SubMessage("a")) == 7


@pytest.mark.parametrize(
    ("path", "reference", "kept"),
    [
        ("orders.py", "orders:Reindex", "{}/orders.py:Reindex"),
        ("orders.py", "orders.py:Reindex", "{}/orders.py:Reindex"),
        ("orders/__init__.py", "orders:Reindex", "{}/orders:Reindex"),
        ("shop/orders.py", "shop.orders:Reindex", "{}/shop.orders:Reindex"),
        ("app/shop/orders.py", "app/shop.orders:Reindex", "{}/app/shop.orders:Reindex"),
        ("orders.py", "./orders:Reindex", "{}/orders.py:Reindex"),
        ("with:colon/orders.py", "with:colon/orders:Reindex", "{}/with:colon/orders.py:Reindex"),
        ("with:colon/orders.py", "with:colon/orders.py", "{}/with:colon/orders.py"),
    ],
)
def test_a_module_found_in_a_folder_is_found_again_from_another(
    path: str, reference: str, kept: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, CLASS)
    before = set(sys.modules)
    absolute = load_handler(reference).absolute_reference

    assert absolute == kept.format(folder)
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path.remove(str(Path(absolute.rpartition("/")[0])))
    monkeypatch.chdir("/")
    found = load_handler(absolute)
    assert keys_of(found) == ["from the class"]
    assert found.absolute_reference == absolute
    assert load_handler("drainer.handlers:Count").absolute_reference == "drainer.handlers:Count"


@pytest.mark.parametrize(
    ("path", "module", "kept"),
    [
        ("orders.py", "orders", "{}/orders.py:Reindex"),
        ("orders/__init__.py", "orders", "{}/orders:Reindex"),
        ("shop/orders.py", "shop.orders", "{}/shop.orders:Reindex"),
        ("shop/orders/__init__.py", "shop.orders", "{}/shop.orders:Reindex"),
    ],
)
def test_an_imported_class_has_the_reference_of_a_command(
    path: str, module: str, kept: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, CLASS)
    sys.path.insert(0, str(folder))
    imported = handler_of(importlib.import_module(module).Reindex)
    absolute = imported.absolute_reference
    assert absolute == kept.format(folder)

    sys.path.remove(str(folder))
    for name in {"orders", "shop", "shop.orders"} & sys.modules.keys():
        del sys.modules[name]
    monkeypatch.chdir("/")
    found = load_handler(absolute)
    assert (found.absolute_reference, found.code) == (absolute, imported.code)
    assert keys_of(found) == ["from the class"]


def test_a_class_that_no_folder_leads_to_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(write("program.py", "").absolute()), raising=False
    )

    class Local(Print): ...

    class Outer:
        class Nested(Print): ...

    assert handler_of(Print).absolute_reference == "drainer.handlers:Print"
    name = f"{__name__}:{Local.__qualname__}"
    assert handler_of(Local).absolute_reference == name
    Local.__module__ = "__main__"
    assert handler_of(Local).absolute_reference == f"__main__:{Local.__qualname__}"
    Outer.Nested.__qualname__ = "Outer.Nested"
    assert handler_of(Outer.Nested).absolute_reference.endswith("test_loader.py:Outer.Nested")
    for module in ("__main__", "not.imported", "builtins"):
        Outer.Nested.__module__ = module
        assert handler_of(Outer.Nested).absolute_reference == f"{module}:Outer.Nested"


def test_a_class_from_a_zip_file_keeps_its_name(folder: Path) -> None:
    """Spark gets it by ``spark.submit.pyFiles``, and can't be sent a path within the file."""
    with zipfile.ZipFile("h.zip", "w") as archive:
        for name in ("zipped.py", "inside/__init__.py", "inside/zipped.py"):
            archive.writestr(name, dedent(CLASS))
    sys.path.insert(0, str(folder / "h.zip"))
    for name in ("zipped", "inside", "inside.zipped"):
        absolute = handler_of(importlib.import_module(name).Reindex).absolute_reference
        assert absolute == f"{name}:Reindex"


def test_a_class_whose_module_has_more_names_than_its_path_keeps_its_name() -> None:
    name = ".".join("abcdefghijklmnopqrstuvwxyz")
    spec = importlib.util.spec_from_file_location(name, write("lonely.py", CLASS).absolute())
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = handler_of(module.Reindex)
    assert found.absolute_reference == f"{name}:Reindex"
    assert found.code is not None


def test_a_module_that_a_user_has_installed_for_themselves_keeps_its_name(folder: Path) -> None:
    code = """
        import site, sys
        from pathlib import Path

        site.ENABLE_USER_SITE = True  # In a virtual environment it is off.
        installed = Path(site.getusersitepackages())
        installed.mkdir(parents=True)
        (installed / "mine.py").touch()
        sys.path.append(str(installed))

        import mine
        from drainer.loading.importing import place_of

        print(place_of("mine"))
    """
    own = {**os.environ, "PYTHONUSERBASE": str(folder)}
    words = [sys.executable, "-c", dedent(code)]
    done = subprocess.run(words, env=own, capture_output=True, text=True, check=True)
    assert done.stdout == "mine\n"


def test_a_module_of_the_same_name_elsewhere_does_not_stand_in_for_one_in_a_folder() -> None:
    """A resume would run another handler than the drain began with."""
    Path("app").mkdir()
    error = fails("app/drainer.handlers:Count", UsageError)

    assert "there is no module 'drainer.handlers' in" in str(error)


# What a handler has, and has not.


@pytest.mark.parametrize(
    ("code", "is_async"),
    [
        ("async def handle(sub): ...", True),
        ("def handle(sub): ...", False),
        ("class F:\n    def __call__(self, sub): ...\nhandle = F()", False),
        (
            "import functools\nclass F:\n    async def __call__(self, a, sub): ...\n"
            "handle = functools.partial(functools.partial(F()), 1)",
            True,
        ),
    ],
)
def test_async_and_plain_are_distinguished(code: str, is_async: bool) -> None:
    write("orders.py", code)

    assert load_handler("orders.py").is_async is is_async


@pytest.mark.parametrize("prefix", ["async ", ""])
def test_a_handle_that_yields_is_refused(prefix: str) -> None:
    """Calling it does nothing at all, and would count as done."""
    write("orders.py", f"{prefix}def handle(sub):\n    yield sub\n")

    assert "is a generator" in str(fails("orders.py", UsageError))


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("def open(self): pass", "Define it as `def open(self, context)`."),
        ("async def open(self): pass", "Define it as `async def open(self, context)`."),
        ("def close(self, context): pass", "Define it as `def close(self)`."),
        ("def split(message): pass", "Define it as `def split(self, message)`."),
        ("def is_outage(self): pass", "Define it as `def is_outage(self, error)`."),
        ("def coalesce(self, subs): pass", "Define it as `def coalesce(self, earlier, later)`."),
        ("def configure(self): pass", "Define it as `def configure(self, options)`."),
    ],
)
def test_a_method_that_drainer_could_not_call_is_refused_with_the_right_signature(
    body: str, hint: str
) -> None:
    write(
        "orders.py",
        f"""
        import drainer

        class Reindex(drainer.Handler):
            async def handle(self, sub, retries=3): pass
            {body}
        """,
    )

    assert fails("orders.py", UsageError).hint == hint


def test_a_function_of_a_module_is_told_its_signature_without_self() -> None:
    write("orders.py", "def handle(sub, client): pass\n")

    error = fails("orders.py", UsageError)

    assert "calls `handle(sub)`" in str(error)
    assert "takes (sub, client)" in str(error)
    assert error.hint == "Define it as `def handle(sub)`."


@pytest.mark.parametrize(
    ("body", "default"),
    [
        ("", True),
        ("def split(self, message): return []", False),
        ("@staticmethod\n    def split(message): return []", False),
        ("split = None", True),
    ],
)
def test_the_default_split_is_known_without_calling_it(body: str, default: bool) -> None:
    write(
        "orders.py",
        f"import drainer\nclass H(drainer.Handler):\n    def handle(self, sub): ...\n    {body}\n"
        "class Child(H): ...\n",
    )

    assert (load_handler("orders:H").split is None) is default
    assert (load_handler("orders:Child").split is None) is default


@pytest.mark.parametrize("prefix", ["async ", ""])
def test_open_and_close_may_be_async_or_plain(prefix: str) -> None:
    write(
        "orders.py",
        f"""
        import drainer
        class H(drainer.Handler):
            events = []
            {prefix}def open(self, context):
                self.events.append(dict(context.options))
            {prefix}def close(self):
                self.events.append("closed")
            def handle(self, sub): ...
        """,
    )
    handler = load_handler("orders:H")

    async def open_and_close() -> None:
        await handler.open(CONTEXT)
        await handler.close()

    asyncio.run(open_and_close())
    assert sys.modules["orders"].H.events == [{"url": "http://x"}, "closed"]


@pytest.mark.parametrize("prefix", ["async ", ""])
def test_a_handler_that_exits_when_opened_does_not_end_drainer_as_done(prefix: str) -> None:
    write(
        "orders.py",
        f"import sys\n{prefix}def open(context): sys.exit(0)\n"
        f"{prefix}def close(): sys.exit(0)\ndef handle(sub): ...\n",
    )
    handler = load_handler("orders.py")

    with pytest.raises(Refused, match=r"open\(\) of .*orders\.py failed: .*SystemExit: 0"):
        asyncio.run(handler.open(CONTEXT))
    with pytest.raises(RuntimeError, match="SystemExit: 0"):
        asyncio.run(handler.close())


# The errors.


def fails(reference: str, kind: type[DrainerError]) -> DrainerError:
    with pytest.raises(kind) as caught:
        load_handler(reference)
    assert caught.value.exit_code == (2 if kind is UsageError else 3)
    assert caught.value.hint
    return caught.value


def test_a_handler_in_a_folder_that_can_not_be_searched_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    with without_privileges():
        assert "you can't read it" in str(fails(f"{tmp_path}/handlers.py:H", UsageError))


@pytest.mark.parametrize(
    "reference",
    [
        *("missing.py", "missing", "missing.deeper:Reindex", "orders.missing:Reindex"),
        *(":Reindex", ".orders:Reindex", "a..b", "a b:C", "orders:Nothing"),
        *("orders:Reindex.Nothing", "orders:number", "orders:WithoutHandle", "orders:NotCallable"),
        *("empty.py", "two.py"),
    ],
)
def test_a_wrong_reference_is_a_usage_error(reference: str) -> None:
    write(
        "orders.py",
        dedent(CLASS) + "number = 7\n"
        "def function(sub): ...\n"
        "class WithoutHandle(drainer.Handler): ...\n"
        "class NotCallable:\n    handle = 7\n",
    )
    write("empty.py", "x = 1")
    write(
        "two.py",
        """
        import drainer
        class One(drainer.Handler):
            def handle(self, sub): ...
        class Two(One): ...
        """,
    )

    assert reference.partition(":")[0] in str(fails(reference, UsageError))


TOGETHER = """
import drainer
class Both(drainer.Handler):
    max_batch, batch_of = 7, "lane"
    async def handle_batch(self, subs): ...
    def coalesce(self, earlier, later): ...
class Folds(drainer.Handler):
    def handle(self, sub): ...
    def coalesce(self, earlier, later): ...
class One(drainer.Handler):
    def handle(self, sub): ...
class Wrong(Both):
    {wrong}
"""


def test_a_name_that_is_nearly_right_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_handlers.py").write_text("")
    assert fails("my_handler.py:H", UsageError).hint == "Did you mean my_handlers.py?"
    assert "Did you mean count?" in str(fails("cuont", UsageError).hint)
    write("orders.py", CLASS)
    assert "Reindex" in str(fails("orders:Renidex", UsageError).hint)


def test_a_handler_may_need_whole_messages() -> None:
    write(
        "orders.py",
        "import drainer\nclass H(drainer.Handler):\n    def handle(self, sub): ...\n"
        "class Whole(H):\n    whole_messages = True\n",
    )

    assert not load_handler("orders:H").whole_messages
    assert load_handler("orders:Whole").whole_messages


def test_what_a_handler_declares_of_several_at_once_is_read() -> None:
    write("orders.py", TOGETHER.format(wrong="pass"))

    together, folds, one = (load_handler(f"orders:{name}") for name in ("Both", "Folds", "One"))

    assert together.batching is not None
    assert folds.batching is not None
    assert (together.batching.most, together.batching.of) == (7, BatchOf.LANE)
    assert together.is_async
    assert together.batching.coalesce is not None
    assert (folds.batching.most, folds.is_async) == (1, False)
    assert one.batching is None


@pytest.mark.parametrize("wrong", ["max_batch = 0", "max_batch = True", "batch_of = 'keys'"])
def test_nonsense_about_several_at_once_is_a_usage_error(wrong: str) -> None:
    write("orders.py", TOGETHER.format(wrong=wrong))
    assert wrong in str(fails("orders:Wrong", UsageError))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("def handle(sub", "SyntaxError"),
        ("raise SystemExit", "SystemExit"),
        ("raise AssertionError('first line\\nsecond')", "AssertionError: first line"),
        ("class H(drainer.Handler):\n    def __init__(self, url): ...", "'url'"),
    ],
)
def test_an_error_at_import_is_refused_with_its_place(code: str, expected: str) -> None:
    write("broken.py", f"import drainer\n{code}\n")

    error = str(fails("broken.py", Refused))

    assert expected in error
    assert "second" not in error
    assert "broken.py" in error
    assert expected in ("SyntaxError", "'url'") or "broken.py:2" in error


def test_a_missing_library_is_to_be_installed_for_the_python_of_drainer() -> None:
    write("mine/broken.py", "import no_such_library")
    write("mine/shop/__init__.py", "")
    write("mine/other.py", "import shop.no_such_part")

    hint = fails("mine/broken.py", Refused).hint or ""

    assert hint.startswith("no_such_library is missing where drainer runs: install its package")
    assert f"`{sys.executable} -m pip install …`" in hint
    assert fails("mine/other.py", Refused).hint == "Fix the handler. Nothing was touched."


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise ValueError('no url')", "ValueError: no url"),
        ("import shop.missing", "No module named 'shop.missing'"),
    ],
)
def test_an_error_in_the_package_around_the_module_is_refused_too(code: str, expected: str) -> None:
    write("shop/__init__.py", code)
    write("shop/orders.py", CLASS)

    assert expected in str(fails("shop.orders:Reindex", Refused))


@pytest.mark.parametrize("name", ["__main__", "json"])
def test_what_drainer_itself_runs_on_stays_in_its_place(name: str) -> None:
    before = sys.modules[name]
    write(f"{name}.py", CLASS)

    assert keys_of(load_handler(f"{name}.py:Reindex")) == ["from the class"]
    assert sys.modules[name] is before


# Another one of the same, and functions.


@for_root
def test_a_neighbour_that_another_user_could_have_put_there_is_not_imported(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    write("orders.py", f"{dedent(CLASS)}\nimport theirs\n")
    write("theirs.py", "")
    os.chown(tmp_path / "theirs.py", UNPRIVILEGED, UNPRIVILEGED)
    assert f"{tmp_path}/theirs.py belongs to" in str(fails("orders.py:Reindex", Refused))
    os.chown(tmp_path / "theirs.py", 0, 0)
    assert load_handler("orders.py:Reindex")


def test_a_fresh_one_of_a_class_is_another_instance() -> None:
    write("orders.py", CLASS)
    handler = load_handler("orders.py:Reindex")

    fresh = handler.fresh()

    assert fresh.target is not handler.target
    assert type(fresh.target) is type(handler.target)
    assert fresh.fresh().target is not fresh.target
    assert (fresh.reference, fresh.absolute_reference) == (
        handler.reference,
        handler.absolute_reference,
    )


def test_a_fresh_one_of_a_module_or_an_instance_is_the_same() -> None:
    write("orders.py", FUNCTIONS)
    for handler in (load_handler("orders"), LoadedHandler("mine", Count())):
        assert handler.fresh().target is handler.target


FILES_BESIDE = ("mine", "parent", "aside", "shop", "shop.rules", "shop.prices", "late")


def code_of(reference: str) -> str:
    for name in (*FILES_BESIDE, "shop.sub", "shop.sub.handlers", f"{OWN_NAME}mine"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    found = load_handler(reference).code
    assert found is not None
    return found


@pytest.mark.parametrize("reference", ["mine.py:Reindex", "mine:Reindex"])
def test_the_digest_of_the_code_changes_with_it(reference: str) -> None:
    write("parent.py", CLASS)
    write("aside.py", "x = 1")
    write("mine.py", "from parent import Reindex as Parent\nclass Reindex(Parent): ...")
    known = code_of(reference)
    assert code_of(reference) == known

    write("aside.py", "x = 2")
    assert code_of(reference) == known, "nothing imports it"
    write("parent.py", f"{dedent(CLASS)}\n# changed")
    changed = code_of(reference)
    assert changed != known
    write(
        "mine.py", "import aside\nfrom parent import Reindex as Parent\nclass Reindex(Parent): ..."
    )
    assert code_of(reference) not in (known, changed)


@pytest.mark.parametrize("beside", ["aside", "shop/__init__", "shop/rules", "shop/prices", "late"])
@pytest.mark.parametrize("reference", ["mine.py:Reindex", "mine:Reindex"])
def test_what_a_handler_imports_from_beside_it_is_code_of_it(reference: str, beside: str) -> None:
    write("aside.py", "LIMIT = 1")
    write("shop/__init__.py", "from . import prices")
    write("shop/prices.py", "import json, late")
    write("shop/rules.py", "def rule(): import late as lazy")
    write("late.py", "x = 1")
    write("mine.py", f"{dedent(CLASS)}\nfrom aside import LIMIT\nfrom shop.rules import rule")
    known = code_of(reference)

    write(f"{beside}.py", f"{Path(beside).with_suffix('.py').read_text()}\n# changed")
    assert code_of(reference) != known


def test_a_module_of_a_package_is_found_by_its_own_imports() -> None:
    write(
        "shop/sub/handlers.py",
        f"{dedent(CLASS)}\nfrom ..rules import rule\nfrom shop import prices",
    )
    write("shop/rules.py", "def rule(): ...")
    write("shop/prices.py", "x = 1")
    found = [code_of("shop.sub.handlers:Reindex")]
    for path in ("shop/rules.py", "shop/prices.py"):
        write(path, f"{Path(path).read_text()}\n# changed")
        found.append(code_of("shop.sub.handlers:Reindex"))
    assert len(set(found)) == 3


def test_imports_that_can_not_be_looked_at_or_parsed_stop_nothing() -> None:
    """The handler may do without them, and a chain of imports may be long."""
    write("deep.py", f"x = {'-' * 200_000}1")
    for number in range(1200):
        write(f"m{number}.py", f"import m{number + 1}")
    write("mine.py", f"{dedent(CLASS)}\nif not Reindex:\n    import deep, m0, {'n' * 300}")
    known = code_of("mine.py:Reindex")
    write("m1200.py", "x = 2")
    assert code_of("mine.py:Reindex") != known


def test_the_rest_of_drainer_is_no_code_of_a_built_in_handler() -> None:
    own = hashlib.sha256(Path(handlers.__file__).read_bytes()).digest()
    assert load_handler("count").code == f"sha256:{hashlib.sha256(own).hexdigest()}"


def test_another_python_is_no_change_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    write("parent.py", CLASS)
    write("mine.py", "import abc, parent\nclass Reindex(parent.Reindex, abc.ABC): ...")
    known = code_of("mine:Reindex")
    monkeypatch.setattr(abc, "__file__", str(write("upgraded.py", "x = 1")))
    assert code_of("mine:Reindex") == known


# What lies beside a handler.


@pytest.mark.parametrize("reference", ["mine:Reindex", "shop/mine.py:Reindex"])
def test_what_lies_beside_a_handler_takes_no_library_s_place(
    reference: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """drainer imports some of its libraries late: they would come from the handler's folder."""
    for name in ("colorsys", "rule_engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        write(f"{name}.py", "raise AssertionError('the wrong one')")
        write(f"shop/{name}.py", "raise AssertionError('the wrong one')")
    write("mine.py", CLASS)
    write("shop/mine.py", CLASS)

    load_handler(reference)

    for name in ("colorsys", "rule_engine"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        assert not Path(found.origin).is_relative_to(folder)


class Configured(Handler):
    plan_options = frozenset({"url", "batch"})

    def configure(self, options: Mapping[str, str]) -> None:
        self.max_batch = int(options.get("batch", "1"))

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        pass


def test_a_handler_is_made_by_its_options_before_it_is_opened() -> None:
    handler = LoadedHandler("one", Configured).configured({"batch": "7"})
    assert handler.batching is not None
    assert handler.batching.most == 7
    with pytest.raises(UsageError, match="the handler one: ValueError: invalid literal"):
        LoadedHandler("one", Configured).configured({"batch": "many"})


def test_a_bug_in_configure_is_a_refusal() -> None:
    class Wrong(Configured):
        def configure(self, options: Mapping[str, str]) -> None:
            self.max_batch = options["batch"]  # type: ignore[assignment]

    with pytest.raises(
        Refused, match=r"configure\(\) of the handler one failed: KeyError"
    ) as caught:
        LoadedHandler("one", Wrong).configured({})
    assert caught.value.hint


def test_a_function_of_a_module_is_not_called_to_configure_it(folder: Path) -> None:
    write("mine.py", "def configure(): raise AssertionError\ndef handle(sub): pass\n")
    assert load_handler("mine").configured({"batch": "7"}).batching is None


def test_the_plan_keeps_the_options_that_a_handler_names_and_no_secret() -> None:
    handler = LoadedHandler("one", Configured)
    assert handler.kept_options({"url": "http://x", "other": "y"}) == {"url": "http://x"}
    assert handler.kept_options({"url": "http://user:word@x"}) == {}


@pytest.mark.parametrize("handler", ["count", "http", "drainer.letters.resend:Resend"])
def test_drainer_s_own_code_need_not_be_named_again(handler: str) -> None:
    own = PayloadSettings(value_format="avro", key_format="json")
    assert not [*foreign_code(replace(PLAN.terms, handler=handler, payloads=own))]


def test_drainer_s_own_module_is_named_alike_in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(handlers.__path__[0]).parents[1])
    found = load_handler("drainer.letters.resend:Resend", PayloadSettings(), {})
    assert found.absolute_reference == found.reference


@pytest.mark.parametrize(
    "handler",
    ["h.py:Reindex", "my.handlers", "drainer.py", "drainer.x.py:A", "drainer.x/h:A", "count:A"],
)
def test_a_handler_that_is_not_drainer_s_must_be_named_again(handler: str) -> None:
    """Whatever its name looks like: the plan may be a stranger's."""
    assert [*foreign_code(replace(PLAN.terms, handler=handler))] == [("handler", handler)]


def test_a_decoder_and_a_function_that_splits_for_produce_are_code_too() -> None:
    payloads = PayloadSettings(value_format="mine", key_format="my.module:decoder")
    options = {"topic": "wide", "split": "s.py"}
    terms = replace(PLAN.terms, handler="produce", payloads=payloads, options=options)
    assert [*foreign_code(terms)] == [
        ("options", "split=s.py"),
        ("value_format", "mine"),
        ("key_format", "my.module:decoder"),
    ]
