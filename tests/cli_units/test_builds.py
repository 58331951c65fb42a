"""The packages of a commit: the same bytes wherever they are built, with what belongs into them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from docs.pages import ROOT
from needs import missing

pytestmark = pytest.mark.long

TAG = "v9.8.7"
# What an sdist has beside drainer itself.
BESIDE = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
VERSION = re.compile(r"\d+(\.\d+)*(\.dev\d+)?(\+g[0-9a-f]+)?")


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    """Those of this Python's environment come first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patched.delenv("VIRTUAL_ENV", raising=False)
        for program in ("git", "uv", "pipx"):
            if shutil.which(program) is None:
                missing(f"{program} is not installed")
        if not (ROOT / ".git").exists():
            missing(f"{ROOT} is no checkout")
        yield


def run(*words: str | Path, folder: Path, umask: int = 0o022) -> str:
    done = subprocess.run(
        words, cwd=folder, umask=umask, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clone(to: Path, *, tag: bool = False, umask: int = 0o022) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    run("git", "clone", "-q", "--no-tags", ROOT, to, folder=to.parent, umask=umask)
    if tag:
        run("git", "tag", TAG, folder=to)
    return to


def build(source: Path, umask: int = 0o022) -> dict[str, bytes]:
    """Build by the script of the checkout, and return the packages by name."""
    run(source / ".ci/build", "dist", folder=source, umask=umask)
    return {p.name: p.read_bytes() for p in (source / "dist").iterdir() if p.name[0] == "d"}


def said(program: Path) -> str:
    return run(program, "--version", folder=program.parent).removeprefix("drainer ").strip()


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = clone(tmp_path_factory.mktemp("tagged") / "drainer", tag=True)
    build(source)
    return source


def test_two_builds_of_a_commit_have_the_same_bytes(tagged: Path, tmp_path: Path) -> None:
    """By another user, in another folder, at another time."""
    other = clone(tmp_path / "elsewhere/in a folder/d", tag=True, umask=0o077)
    for path in other.rglob("*.py"):
        os.utime(path, (1e9, 1e9))

    first, second = (
        {n: sha256(d).hexdigest() for n, d in each.items()}
        for each in (build(tagged), build(other, 0o077))
    )

    assert sorted(first) == ["drainer-9.8.7-py3-none-any.whl", "drainer-9.8.7.tar.gz"]
    assert first == second


def test_a_wheel_is_the_same_from_the_sdist_and_from_the_checkout(
    tagged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = run("git", "log", "-1", "--format=%ct", folder=tagged).strip()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", committed)
    (wheel,) = (tagged / "dist").glob("*.whl")
    direct = tagged / "direct"
    tools = tagged / ".ci/build-tools.txt"
    run("uv", "build", "-q", "--wheel", "--build-constraints", tools, "-o", direct, folder=tagged)

    assert (direct / wheel.name).read_bytes() == wheel.read_bytes()


def test_packages_have_what_belongs_into_them(tagged: Path) -> None:
    tracked = set(run("git", "ls-files", "drainer", folder=tagged).split()) | {
        "drainer/_version.py"
    }
    (sdist,), (wheel,) = ((tagged / "dist").glob(f"*{ending}") for ending in (".tar.gz", ".whl"))
    with tarfile.open(sdist) as archive:
        files = {each.name.partition("/")[2]: each.mode for each in archive.getmembers()}
    packed = zipfile.ZipFile(wheel).namelist()

    assert set(files) == tracked | BESIDE
    assert {mode & 0o777 for mode in files.values()} == {0o644}
    assert {name for name in packed if ".dist-info/" not in name} == tracked


def test_a_checkout_names_its_commit_with_and_without_tags_or_git(tmp_path: Path) -> None:
    untagged = clone(tmp_path / "untagged")
    commit = run("git", "rev-parse", "HEAD", folder=untagged).strip()
    (wheel,) = (name for name in build(untagged) if name.endswith(".whl"))
    (found,) = re.findall(r"\+g([0-9a-f]+)-", wheel)
    assert commit.startswith(found)

    copy = tmp_path / "copy"
    shutil.copytree(untagged, copy, ignore=shutil.ignore_patterns(".git", "dist", "_version.py"))
    assert "drainer-0.1.dev0.tar.gz" in build(copy)

    run("git", "tag", "-a", "-m", "a release", TAG, folder=untagged)
    archive = tmp_path / "archive.tar"
    run("git", "archive", "--prefix=archived/", "-o", archive, TAG, folder=untagged)
    run("tar", "-xf", archive, folder=tmp_path)
    assert "drainer-9.8.7.tar.gz" in build(tmp_path / "archived")


def test_an_editable_install_and_a_checkout_that_was_never_installed_say_a_version(
    tmp_path: Path,
) -> None:
    source = clone(tmp_path / "source", tag=True)
    # The libraries are this environment's.
    ask = (sys.executable, "-c", "import drainer; print(drainer.__version__)")
    assert run(*ask, folder=source).strip() == "0+unknown"

    run("uv", "venv", "-q", tmp_path / "env", folder=source)
    python = tmp_path / "env/bin/python"
    run("uv", "pip", "install", "-q", "--python", python, "-e", ".", folder=source)
    assert run(python, *ask[1:], folder=tmp_path).strip() == "9.8.7"


def test_uvx_and_pipx_install_it_as_the_readme_says(
    tagged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text()
    assert "`uvx --from . drainer --version`" in readme
    assert "`pipx install '.[http]'`" in readme
    for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))

    assert (
        run("uvx", "-q", "--from", ".", "drainer", "--version", folder=tagged) == "drainer 9.8.7\n"
    )
    run("pipx", "install", "-q", ".[http]", folder=tagged)
    assert said(tmp_path / "PIPX_BIN_DIR/drainer") == "9.8.7"
