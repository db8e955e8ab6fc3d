"""Every text in hango that a user, an operator or a model may read, as one table.

``make texts`` prints it.  Found in the source: each string literal with a space in it that is not a
docstring, SQL or a name; and the help of commands, and the API document.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path

import attrs
import click

import hango
from hango.cli.commands import cli
from hango.web.app import ROUTES
from hango.web.openapi import make_document

ROOT = Path(hango.__file__).parent
_LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
_OURS = {name for name, value in vars(hango.errors).items() if isinstance(value, type)}
_SQL = re.compile(r"\s*(select|insert|update|delete|create|set|alter|drop|listen|begin)\b[^:]*$")
# what a call does with its texts, by the name of what is called
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(_OURS, "error"),
    "ValueError": "error",
    "ProblemType": "API error",
    "RunError": "error of a run",
    "echo": "command line",
    "BadParameter": "command line",
    "UsageError": "command line",
    "_say": "command line",
}


@attrs.frozen
class Text:
    """One text.

    Attributes:
        kind: who reads it, and where; ``other`` is what no rule here knows, such as texts for models.
        place: a file of hango, or a place in a document.
        text: its placeholders are written ``{…}``.
    """

    kind: str
    place: str
    text: str


def all_texts() -> list[Text]:
    """Return every text, sorted by kind and place."""
    texts = [*_commands(cli, "hango"), *_document(make_document("", ROUTES), "openapi"), *_source()]
    # once each: the same words stand at many places of the document
    found = {text.text: text for text in reversed(texts)}
    return sorted(found.values(), key=attrgetter("kind", "place", "text"))


def _source() -> Iterator[Text]:
    for file in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        skipped = set(_docstrings(tree)) | set(_not_texts(tree))
        kinds = dict(_kinds(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped.update(id(part) for part in ast.walk(node) if part is not node)
        for node in ast.walk(tree):
            text = _text(node)
            if " " in text.strip() and id(node) not in skipped and not _SQL.match(text):
                kind = kinds.get(id(node), "other")
                yield Text(kind, str(file.relative_to(ROOT)), " ".join(text.split()))


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "{…}" for part in parts)
    return ""


def _docstrings(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def _not_texts(tree: ast.Module) -> Iterator[int]:
    """Yield patterns, type expressions and the like."""
    for node in ast.walk(tree):
        ignored: Iterable[ast.AST] = ()
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "os" | "attrs")), args=args):
                ignored = args
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "_symbol"), args=args):
                ignored = args
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
                ignored = (annotation,)
        yield from (id(inner) for part in ignored for inner in ast.walk(part))


def _kinds(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what is known of string literals from the call they are in; the innermost comes last."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kind = "log" if name in _LEVELS and _is_log(node.func) else _KINDS.get(name)
        if kind:
            yield from ((id(inner), kind) for inner in ast.walk(node))


def _is_log(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", "").endswith("_log")


def _commands(command: click.Command, name: str) -> Iterator[Text]:
    """Yield the help of a command, its options and its sub-commands."""
    if command.help:
        yield Text("help", name, " ".join(command.help.split()))
    for option in command.params:
        if isinstance(option, click.Option) and option.help:
            yield Text("help", f"{name} {option.opts[-1]}", option.help)
    if isinstance(command, click.Group):
        for each, inner in command.commands.items():
            yield from _commands(inner, f"{name} {each}")


def _document(value: object, place: str) -> Iterator[Text]:
    """Yield titles and descriptions of the API's document."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("title", "summary", "description") and isinstance(inner, str):
                yield Text("API document", f"{place}.{key}", " ".join(inner.split()))
            yield from _document(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _document(inner, f"{place}.{number}")


if __name__ == "__main__":
    for each in all_texts():
        print(f"{each.kind:<15} {each.place:<40} {each.text}")  # noqa: T201 - its work
