"""Listening on a Unix socket: one that is in use is not taken, and nothing else is removed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trio

from hango.db.pool import Pool
from hango.store import Stores
from hango.web.app import create_app
from hango.web.server import accept as server

from support.api import SETTINGS, running
from support.processes import hango


async def test_a_socket_in_use_is_not_taken(pool: Pool, tmp_path: Path) -> None:
    """N31: a second server is refused, and the first goes on; a stale socket is replaced."""
    path = tmp_path / "hango.sock"
    bind = f"unix:{path}"
    for _ in range(2):
        async with running(pool, bind=bind):
            with trio.fail_after(20), pytest.raises(OSError, match="another process listens there"):
                await server.serve(
                    create_app(Stores.on(pool), SETTINGS, trio.Event()), bind, stop=trio.Event()
                )
            assert await answers_on(path)
        assert not path.exists()
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()  # what kill -9 leaves behind


async def test_a_socket_that_is_not_ours_any_more_is_left(pool: Pool, tmp_path: Path) -> None:
    """N31: at its end a server removes its own socket only."""
    path = tmp_path / "hango.sock"
    async with running(pool, bind=f"unix:{path}"):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


async def answers_on(path: Path) -> bool:
    """Whether a server answers on a Unix socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(base_url="http://hango", transport=transport) as client:
        return (await client.get("/healthz")).status_code == 200


def a_file(path: Path) -> Path:
    """Have a file there."""
    path.write_text("mine")
    return path


def a_link(path: Path) -> Path:
    """Have a link to a socket there."""
    target = path.with_suffix(".target")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(target))
    path.symlink_to(target)
    return path


def a_folder(path: Path) -> Path:
    """Have a folder there."""
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (a_file, "something that is not a socket"),
        (a_link, "something that is not a socket"),
        (a_folder, "something that is not a socket"),
        (lambda path: path / "missing" / "x", "No such file"),
        (lambda path: path.with_name("x" * 120), "too long for a socket"),
    ],
)
async def test_what_is_no_socket_is_left_alone(
    pool: Pool, tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    """N31, W-L3: a path that cannot be listened on is an error that says why; nothing is removed."""
    path = make(tmp_path / "s")
    existed = path.exists()
    app = create_app(Stores.on(pool), SETTINGS, trio.Event())
    with trio.fail_after(20), pytest.raises(OSError, match=says):
        await server.serve(app, f"unix:{path}", stop=trio.Event())
    assert path.exists() is existed


async def test_the_reason_is_what_the_operator_reads(database: str) -> None:
    """W-L3: not a group of exceptions, and no traceback."""
    there = "unix:/nonexistent/x"
    done = await hango("serve", "--bind", there, HANGO_DATABASE_URL=database, HANGO_ROLE="web")
    assert done.code == 2
    assert f"HANGO_BIND: cannot listen on {there}: [Errno 2] No such file" in done.err
    assert "Traceback" not in done.err
