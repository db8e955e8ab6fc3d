"""The description as one page of HTML: no script, nothing loaded, every name a link to its schema.

Rule: it is drawn from what the document is made of, so that the two cannot differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from operator import attrgetter

from hango.domain import JsonObject
from hango.web.openapi.operation import Operation
from hango.web.openapi.operations import OPERATIONS, ROOMS
from hango.web.openapi.schemas import SCHEMAS

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; border-radius: 4px; }
details { border: 1px solid var(--line); border-radius: 4px; margin: .5rem 0; padding: .5rem .75rem; }
summary { cursor: pointer; }
summary b { display: inline-block; width: 4.5rem; font: 600 14px ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top; }
td:first-child { white-space: nowrap; }
"""
_NAME = re.compile(r"#/components/schemas/(\w+)")
_CODE = re.compile(r"`([^`]+)`")


def make_page(version: str) -> str:
    """Draw the API of hango *version*."""
    title = f"hango {escape(version)}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f'<h1>{title}</h1><p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
            *(line for room, text in ROOMS.items() for line in _room(room, text)),
            "<h2>schemas</h2>",
            *(line for name, schema in SCHEMAS.items() for line in _named(name, schema)),
            "</body></html>\n",
        ]
    )


def _room(room: str, text: str) -> Iterator[str]:
    yield f"<h2>{escape(room)}</h2><p>{_prose(text)}</p>"
    for operation in OPERATIONS:
        if operation.room == room:
            yield from _operation(operation)


def _operation(operation: Operation) -> Iterator[str]:
    call = f"<b>{operation.method}</b> <code>{escape(operation.path)}</code>"
    yield f'<details id="{operation.name}"><summary>{call} {_prose(operation.summary)}</summary>'
    if operation.description:
        yield f"<p>{_prose(operation.description)}</p>"
    if operation.parameters:
        yield from _table(
            (f"<code>{escape(it.name)}</code>", f"{_prose(it.description)} {_schema(it.schema)}")
            for it in operation.parameters
        )
    if operation.body:
        yield f"<p>Body: {_schema(operation.body)}, such as</p>"
        yield f"<pre>{escape(json.dumps(operation.example, indent=2))}</pre>"
    yield from _table(_answers(operation))
    yield "</details>"


def _answers(operation: Operation) -> Iterator[tuple[str, str]]:
    for answer in operation.answers:
        headers = ", ".join(f"<code>{name}</code>" for name in (*answer.headers, *answer.may_have))
        body = _schema(answer.schema) if answer.schema else ""
        yield str(answer.status), f"{_prose(answer.description)} {body} {headers}"
    for status, kinds in groupby(operation.problems, attrgetter("status")):
        yield str(status), "<br>".join(f"<code>{it.code}</code> {escape(it.title)}" for it in kinds)


def _table(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield "<table>"
    for left, right in rows:
        yield f"<tr><td>{left}</td><td>{right}</td></tr>"
    yield "</table>"


def _named(name: str, schema: JsonObject) -> Iterator[str]:
    yield f'<h3 id="{name}">{name}</h3><pre>{_linked(json.dumps(schema, indent=2))}</pre>'


def _schema(schema: JsonObject) -> str:
    return f"<code>{_linked(json.dumps(schema))}</code>"


def _linked(text: str) -> str:
    """Make each reference in the JSON *text* a link to the schema it names."""
    return _NAME.sub(r'<a href="#\1">\1</a>', escape(text, quote=False))


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
