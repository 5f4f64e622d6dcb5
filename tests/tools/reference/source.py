"""What stands in the code: trees, docstrings, signatures, and how they look in Markdown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GENERATED = (
    "<!-- Written by `python -m tests.tools.reference --write`, in the repository: change the code, not this page. -->"
)
_ROLE = re.compile(r":[a-z]+:`~?\.?([^`]+)`")
_SOURCE = re.compile(r"\s*\bSource: .*", re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*roots: str) -> Iterator[str]:
    """The dotted names of all modules below the roots, sorted."""
    for root in roots:
        for path in sorted((ROOT / root).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def tree_of(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def defined(module: str, name: str) -> ast.ClassDef | Function:
    """The class or function of that name, at the top of the module."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    raise LookupError(f"{module} defines no {name}")


def markdown(docstring: str) -> str:
    """A docstring in one paragraph: without blocks of code, and without where something comes from."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        text = _SOURCE.sub("", paragraph).rstrip()
        if not text or text == "::" or text.startswith((" ", "=", "- ", "..")):
            continue
        paragraphs.append(" ".join(text.split()).removesuffix("::"))
    return plain(" ".join(paragraphs))


def first_paragraph(docstring: str) -> str:
    return markdown(docstring.split("\n\n")[0])


def plain(text: str) -> str:
    """reStructuredText's marks as Markdown's; what Markdown would take for HTML or emphasis stays as it is."""
    marked = _ROLE.sub(lambda found: f"``{found[1]}``", text).replace("``", "`")
    pieces = marked.split("`")
    pieces[::2] = [re.sub(r"([*<\[])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def docstring_of(node: ast.ClassDef | Function | ast.Module) -> str:
    return ast.get_docstring(node) or ""


def field_docstrings(node: ast.ClassDef | ast.Module) -> dict[str, str]:
    """The text below each assignment, by the name that is assigned to."""
    found = {}
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            for name in assigned(statement):
                found[name] = markdown(" ".join(str(following.value.value).split()))
    return found


def assigned(statement: ast.stmt) -> list[str]:
    targets: Sequence[ast.expr] = ()
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def signature(function: Function, name: str, *, is_method: bool) -> str:
    """``name(parameters) -> what``, without ``self``."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    texts = [_parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        texts.insert(len(given.posonlyargs), "/")
    if is_method:
        del texts[: 2 if len(given.posonlyargs) == 1 else 1]
    if given.vararg is not None:
        texts.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        texts.append("*")
    texts += [_parameter(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        texts.append(f"**{_parameter(given.kwarg, None)}")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    return f"{name}({', '.join(texts)}){returns}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    text = parameter.arg
    if parameter.annotation is not None:
        text += f": {ast.unparse(parameter.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def decorators(function: Function) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, with an empty one after it; columns in which nothing stands are left out."""
    rows = list(rows)
    kept = [index for index in range(len(header)) if any(row[index] for row in rows)]
    cells = [header, ["---"] * len(header), *rows]
    return [*(_row([row[index] for index in kept]) for row in cells), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def page(*parts: str | Iterable[str]) -> str:
    """The text of a page: parts that are texts are paragraphs."""
    lines: list[str] = []
    for part in parts:
        lines.extend([part, ""] if isinstance(part, str) else part)
    return "\n".join(lines).rstrip("\n") + "\n"
