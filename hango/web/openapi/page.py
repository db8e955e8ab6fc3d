"""The description as one page of HTML: no script, nothing loaded, every name a link to its schema.

Rule: it is made from what the document is made from, so that the two cannot differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from operator import attrgetter

from hango.domain import JsonObject
from hango.web.models.schema import ref_to
from hango.web.openapi.document import TAGS, schemas_of
from hango.web.route import Route

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


def make_page(version: str, routes: Sequence[Route]) -> str:
    """Describe the API of hango *version*."""
    title = f"hango {escape(version)}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f'<h1>{title}</h1><p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
            *(line for tag, text in TAGS.items() for line in _section(tag, text, routes)),
            "<h2>schemas</h2>",
            *(line for name, schema in schemas_of(routes).items() for line in _named(name, schema)),
            "</body></html>\n",
        ]
    )


def _section(tag: str, text: str, routes: Sequence[Route]) -> Iterator[str]:
    yield f"<h2>{escape(tag)}</h2><p>{_prose(text)}</p>"
    for route in routes:
        if route.tag == tag:
            yield from _route(route)


def _route(route: Route) -> Iterator[str]:
    call = f"<b>{route.method}</b> <code>{escape(route.path)}</code>"
    yield f'<details id="{route.name}"><summary>{call} {_prose(route.summary)}</summary>'
    if route.description:
        yield f"<p>{_prose(route.description)}</p>"
    if route.parameters:
        yield from _table(
            (f"<code>{escape(it.name)}</code>", f"{_prose(it.description)} {_schema(it.schema)}")
            for it in route.parameters
        )
    if route.body:
        yield f"<p>Body: {_schema(ref_to(route.body))}, for example</p>"
        yield f"<pre>{escape(json.dumps(route.example, indent=2))}</pre>"
    yield from _table(_replies(route))
    yield "</details>"


def _replies(route: Route) -> Iterator[tuple[str, str]]:
    for reply in route.replies:
        headers = ", ".join(f"<code>{name}</code>" for name in (*reply.headers, *reply.may_have))
        body = _schema(reply.content) if reply.content else ""
        yield str(reply.status), f"{_prose(reply.description)} {body} {headers}"
    for status, types in groupby(route.all_problems, attrgetter("status")):
        yield str(status), "<br>".join(f"<code>{it.code}</code> {escape(it.title)}" for it in types)


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
