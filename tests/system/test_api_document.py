"""The description of the API is that of the API: same routes, same errors, and sound in itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
import trio
from jsonschema import Draft202012Validator

from hango.db.pool import Pool
from hango.store import Stores
from hango.web import problem
from hango.web.app import ROUTES, create_app
from hango.web.openapi import TAGS
from hango.web.openapi.document import schemas_of

from support.api import SETTINGS, Api
from support.openapi_contract import DOCUMENT

SCHEMAS = schemas_of(ROUTES)


async def test_the_routes_are_those_of_the_document(pool: Pool) -> None:
    """Every route the application has is described, and every one described is there."""
    app = create_app(Stores.on(pool), SETTINGS, trio.Event()).asgi
    served = {
        (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method != "HEAD"  # a GET without its body (RFC 9110 §9.3.2)
    }
    assert served == {(route.method, route.path) for route in ROUTES}


async def test_the_document_needs_no_key(api: Api) -> None:
    """Programs read the document, and people the page, without a key."""
    async with api.client() as client:
        document = await client.get("/openapi.json")
        page = await client.get("/docs")
    served = document.json()
    served["info"]["version"] = "test"
    assert served == DOCUMENT
    assert served["openapi"] == "3.1.0"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for route in ROUTES:
        assert f'id="{route.name}"' in page.text
        assert route.path in page.text


async def test_the_document_says_who_needs_a_key(api: Api) -> None:
    """Without a key, exactly what is described as needing one answers 401."""
    async with api.client() as client:
        for route in ROUTES:
            path = route.path.format(**dict.fromkeys(route.ids, "0"))
            answer = await client.request(route.method, path)
            unkeyed = 404 if route.name == "get_metrics" else 200  # nothing is scraped here
            assert answer.status_code == (401 if route.key else unkeyed), route.name


class _Assets(HTMLParser):
    """Finds whatever a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one tag."""
        if tag in {"script", "link", "img", "iframe", "object", "form"}:
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in {"src", "style"}:
                self.found.append(name)
            if name == "href":
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")


async def test_the_page_is_all_there_is(api: Api) -> None:
    """The page loads and runs nothing, and its links lead to what is on it."""
    async with api.client() as client:
        page = await client.get("/docs")
    assets = _Assets()
    assets.feed(page.text)
    assert assets.found == []
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "url(" not in page.text
    assert "@import" not in page.text
    assert {link.removeprefix("#") for link in assets.links} - {"openapi.json"} <= set(assets.ids)
    assert len(set(assets.ids)) == len(assets.ids)
    assert {*SCHEMAS, *(route.name for route in ROUTES)} == set(assets.ids)


def test_every_error_is_declared_somewhere() -> None:
    """Each code of the table is one that the document declares, but for two that no route has."""
    types = {it for it in vars(problem).values() if isinstance(it, problem.ProblemType)}
    declared = {it for route in ROUTES for it in route.all_problems}
    # a wrong method has no route; lost races are for programs inside
    assert types - declared == {problem.METHOD_NOT_ALLOWED, problem.CONFLICT}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_is_used(name: str) -> None:
    """The schemas are sound, and none is there for nothing."""
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert f'"#/components/schemas/{name}"' in json.dumps(DOCUMENT)


def test_every_reference_leads_somewhere() -> None:
    """What the document refers to is in it."""
    referred = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert referred <= set(SCHEMAS)


def test_every_operation_has_a_name_and_a_room() -> None:
    """Names are unique, and every room is described."""
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)
    assert {route.tag for route in ROUTES} == set(TAGS)


def texts(value: object) -> Iterator[str]:
    """Yield every text for people in a part of the document."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"summary", "description", "title"} and isinstance(item, str):
                yield item
            yield from texts(item)
    if isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_what_users_read_is_plain() -> None:
    """Every operation and problem is described, and no text is vague about who does what."""
    found = list(texts(DOCUMENT))
    vague = re.compile(
        r"\b(somebody|anybody|nobody|whoever|everybody|it is so|comes to|told)\b", re.IGNORECASE
    )
    assert [text for text in found if vague.search(text)] == []
    assert all(route.summary.endswith(".") for route in ROUTES)
    assert len(found) > 100
