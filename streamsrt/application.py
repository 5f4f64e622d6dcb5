"""Finding an application by its name: ``MODULE:ATTRIBUTE``."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import topology as topology_package
from streamsrt import errors
from streamsrt.errors import ConfigError, StreamsError
from streamsrt.wording import error_text
from topology import TopologyError
from topology.graph.topology import Topology

_INSTALLED = re.compile(r"^<|[/\\]lib[/\\]python3|site-packages")
_RUNTIME = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (errors, topology_package)
)


@dataclass(frozen=True, slots=True)
class Application:
    """A topology and the configuration of its module."""

    topology: Topology
    config: Mapping[str, Any]


Adapt = Callable[[object], Application | None]


def load_application(name: str, adapt: Adapt | None = None) -> Application:
    """Imports the module and returns its topology. Raises :class:`ConfigError` that says what is missing.

    The module is given by its import name or by the path of its file. ``adapt``: makes an application of an object
    that is no topology, where it knows its kind.
    """
    module_name, attribute = module_and_attribute(name)
    module = _imported(module_name, name)
    if not hasattr(module, attribute):
        raise ConfigError(f"{module_name} has no {attribute!r} (from {name!r}){_instead_of(attribute, module)}")
    topology = getattr(module, attribute)
    if callable(topology):
        topology = _called(topology, f"{module_name}:{attribute}")
    adapted = None if adapt is None or isinstance(topology, Topology) else adapt(topology)
    if adapted is not None:
        return adapted
    if not isinstance(topology, Topology):
        found = sorted(key for key, value in vars(module).items() if isinstance(value, Topology))
        hint = f"; it has {', '.join(found)}" if found else "; build one with StreamsBuilder().build()"
        raise ConfigError(f"{module_name}:{attribute} is not a topology{hint}")
    config = getattr(module, "config", {})
    if not isinstance(config, Mapping):
        raise ConfigError(f"{module_name}:config is {config!r}: it must be a dict of settings by name")
    return Application(topology, config)


def _instead_of(attribute: str, module: ModuleType) -> str:
    """What may have been meant: what is called nearly so, else the topologies that there are."""
    meant = _nearly(attribute, module)
    if meant:
        return meant
    found = sorted(key for key, value in vars(module).items() if isinstance(value, Topology))
    return f"; it has {', '.join(found)}" if found else "; build one with StreamsBuilder().build()"


def _nearly(attribute: str, module: ModuleType) -> str:
    """The question for what is called nearly so; empty where nothing is."""
    public = [key for key in vars(module) if not key.startswith("_")]
    meant = difflib.get_close_matches(attribute, public, n=3)
    return f": did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def load_object(name: str, default: str) -> object:
    """What ``MODULE:ATTRIBUTE`` names, whatever it is. Raises :class:`ConfigError` that says what is missing.

    ``default``: the attribute, where the name has none.
    """
    module_name, attribute = module_and_attribute(name if ":" in name else f"{name}:{default}")
    module = _imported(module_name, name)
    if not hasattr(module, attribute):
        raise ConfigError(f"there is no {attribute!r} in {module_name} (from {name!r}){_nearly(attribute, module)}")
    found: object = getattr(module, attribute)
    return found


def module_and_attribute(name: str) -> tuple[str, str]:
    """The module and its attribute. For a file, its directory is added to Python's import path."""
    module, _, attribute = name.partition(":")
    if not module:
        raise ConfigError(
            f"{name!r} does not name a module: give MODULE:ATTRIBUTE, or the path of a file, as in ./app.py:topology"
        )
    directory = Path.cwd()
    if module.endswith(".py") or "/" in module or os.sep in module:
        path = Path(module if module.endswith(".py") else f"{module}.py").absolute()
        if not path.is_file():
            raise ConfigError(f"there is no file {path} (from {name!r})")
        if not path.stem.isidentifier():
            raise ConfigError(f"{path.name} can't be imported by Python: rename it to letters, digits and '_'")
        # A module of a package is known by the package's name, so that its relative imports work.
        parts = [path.stem]
        directory = path.parent
        while (directory / "__init__.py").is_file():
            parts.insert(0, directory.name)
            directory = directory.parent
        module = ".".join(parts).removesuffix(".__init__")
    for each in (Path.cwd(), directory):
        if str(each) not in sys.path:
            sys.path.insert(0, str(each))
    return module, attribute or "topology"


def is_same_application(one: str, other: str) -> bool:
    """Whether two names, as users write them, are one attribute of one module: ``./app.py`` and ``app:topology`` are."""
    return one == other or module_and_attribute(one) == module_and_attribute(other)


def _imported(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {module!r} (from {name!r}): give MODULE:ATTRIBUTE as Python imports it, "
                f"from {os.getcwd()} or the environment, or the path of its file, as in ./app.py:topology"
            ) from None
        raise ConfigError(f"module {module!r} can't be imported: {error} ({_line(error)})") from error
    except (StreamsError, TopologyError):
        raise
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.filename else f"module {module!r}"
        raise ConfigError(f"{where}: {type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"module {module!r} can't be imported: {error_text(error)} ({_line(error)})") from error


def _called(make: Callable[[], object], name: str) -> object:
    try:
        return make()
    except (StreamsError, TopologyError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{name}() raised {error_text(error)} ({_line(error)})") from error


def _line(error: BaseException) -> str:
    """The innermost line of the program that an error passed; of anything else where it passed none."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    own = [each for each in frames if is_of_program(each.filename)]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def is_of_program(file: str) -> bool:
    """Whether a file is the application's own: of no installed package, and not of the runtime."""
    return not _INSTALLED.search(file) and not file.startswith(_RUNTIME)


def module_digest(name: str) -> str:
    """A hash of the source of an application's module, which is not imported for it; empty where it has no file."""
    path = _source_of(module_and_attribute(name)[0])
    return "" if path is None else sha256(Path(path).read_bytes()).hexdigest()[:32]


def imported_digests(name: str) -> dict[str, str]:
    """A hash of the source of every module that an application's module imports, directly or through another one, by the
    module's name. Installed packages and the runtime are left out.

    The imports are read in the sources, also those inside of functions; nothing is run. One that is made with a computed
    name (``importlib.import_module``) is not seen.
    """
    first = module_and_attribute(name)[0]
    found: dict[str, str] = {}
    # Importing a module runs the packages that it is in.
    waiting = [".".join(first.split(".")[:count]) for count in range(1, first.count(".") + 2)]
    seen = set(waiting)
    while waiting:
        module = waiting.pop()
        path = _source_of(module)
        if path is None or not path.endswith(".py") or not is_of_program(path) or not os.path.isfile(path):
            continue
        source = Path(path).read_bytes()
        if module != first:
            found[module] = sha256(source).hexdigest()[:32]
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        fresh = set(_imports(source, package)) - seen
        seen |= fresh
        waiting += fresh
    return dict(sorted(found.items()))


def changed_modules(digests: Mapping[str, str]) -> list[str]:
    """Of modules with the hashes of their source, those whose source is another one here, or is not here."""
    return [module for module, digest in digests.items() if _digest_of(module) != digest]


def is_here(module: str) -> bool:
    """Whether a module of that name can be found, without running it."""
    return _source_of(module) is not None


def _digest_of(module: str) -> str:
    path = _source_of(module)
    return sha256(Path(path).read_bytes()).hexdigest()[:32] if path is not None and os.path.isfile(path) else ""


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The names in a source that may be modules, with the packages that they are in."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        # Importing it says so.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (above, node.module)))
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _source_of(module: str) -> str | None:
    """The file of a module: of the one that is imported already, or else the one that an import would run."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    inside: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        if count > 1 and inside is None:
            # A name in a module that is no package.
            return None
        # Not importlib.util.find_spec: that imports the packages on the way.
        spec = _found(".".join(parts[:count]), inside)
        if spec is None:
            return None
        inside = spec.submodule_search_locations
    return None if spec is None or not spec.has_location else spec.origin


def _found(module: str, inside: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(module, inside, None)
        if spec is not None:
            return spec
    return None
