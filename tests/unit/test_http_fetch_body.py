"""Bodies: unpacked within the bound, decoded without ever raising."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.errors import InvalidInput
from hango.tools.fetch import FetchedBody, read_body
from hango.tools.fetch.body import MAX_OVERHEAD, is_text

pytestmark = pytest.mark.rule(22)

LIMIT = 1000


async def read(
    chunks: Iterable[bytes], encoding: str = "", limit: int = LIMIT
) -> tuple[FetchedBody, int]:
    """Read *chunks*; return the body, and how many of them were asked for."""
    taken = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal taken
        for chunk in chunks:
            taken += 1
            yield chunk

    source = stream()
    try:
        return await read_body(source, encoding, limit), taken
    finally:
        await source.aclose()  # type: ignore[attr-defined]  # it is a generator


def raw_deflate(data: bytes) -> bytes:
    """Pack without the header that some servers leave out."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def in_pieces(data: bytes, size: int) -> list[bytes]:
    """Cut *data* as a network does."""
    return [data[i : i + size] for i in range(0, len(data), size)]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    " Deflate ": raw_deflate,
}


@pytest.mark.parametrize("encoding", PACKERS)
@given(data=st.binary(max_size=LIMIT), size=st.integers(1, 50))
async def test_every_packing_comes_out_as_it_went_in(encoding: str, data: bytes, size: int) -> None:
    """E11: wherever the network cuts it."""
    body, _ = await read(in_pieces(PACKERS[encoding](data), size), encoding)
    assert body == FetchedBody(data, truncated=False)


@given(parts=st.lists(st.binary(max_size=50), min_size=1, max_size=5), size=st.integers(1, 50))
async def test_gzip_may_have_several_members_and_padding(parts: list[bytes], size: int) -> None:
    """E11: as files put together have, and tapes."""
    packed = b"".join(map(gzip.compress, parts)) + b"\0" * 7
    body, _ = await read(in_pieces(packed, size), "gzip")
    assert body.data == b"".join(parts)


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
@pytest.mark.parametrize(
    ("length", "truncated"), [(LIMIT, False), (LIMIT + 1, True), (5 * LIMIT, True)]
)
async def test_the_bound_is_exact_on_unpacked_bytes(
    encoding: str,
    length: int,
    truncated: bool,  # noqa: FBT001  # a column
) -> None:
    """E11: a body of just the bound is whole, one byte more is not."""
    body, _ = await read([PACKERS[encoding](b"x" * length)], encoding)
    assert body == FetchedBody(b"x" * min(length, LIMIT), truncated)


async def test_a_bomb_is_not_unpacked() -> None:
    """E11: zeros packed a thousand to one stop at the bound, after the first chunk."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b"\0" * 1_000_000) for _ in range(150)) + packer.flush()
    assert 65536 < len(packed) < 160_000
    body, taken = await read(in_pieces(packed, 65536), "gzip")
    assert body == FetchedBody(b"\0" * LIMIT, truncated=True)
    assert taken == 1


async def test_an_endless_body_is_left_at_the_bound() -> None:
    """E11: no more is read than needed."""
    body, taken = await read(b"x" * 100 for _ in iter(int, 1))
    assert body.truncated
    assert taken == LIMIT // 100 + 1


async def test_an_endless_body_that_unpacks_to_nothing_is_left_too() -> None:
    """E11: members without content, one after the other."""
    empty = gzip.compress(b"") * 1000
    body, taken = await read((empty for _ in iter(int, 1)), "gzip")
    assert body == FetchedBody(b"", truncated=True)
    assert taken <= (LIMIT + MAX_OVERHEAD) // len(empty) + 1


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (gzip.compress(gzip.compress(b"x")), "gzip, gzip"),
        (b"x", "br"),
        (b"x", "zstd"),
        (b"x", "compress"),
        (b"x", "e" * 10_000),
        (b"plain text", "gzip"),
        (b"plain text", "deflate"),
        (gzip.compress(b"x" * 500)[:-9], "gzip"),
        (zlib.compress(b"x" * 500)[:-5], "deflate"),
        (gzip.compress(b"x" * 500)[:-8] + b"\0" * 8, "gzip"),
    ],
)
async def test_what_is_not_packed_as_declared_is_an_error(data: bytes, encoding: str) -> None:
    """E11: unknown, nested, broken or cut short."""
    with pytest.raises(InvalidInput) as raised:
        await read([data], encoding)
    assert len(str(raised.value)) < 200


# --- text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "content_type", "text"),
    [
        ("ü".encode(), "", "ü"),
        ("ü".encode(), "text/plain", "ü"),
        ("ü".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ü"),
        ("ü".encode("latin-1"), 'text/plain; Charset="latin1"', "ü"),
        ("日本".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本"),
        ("日本".encode("euc-jp"), "text/html;charset=EUC-JP", "日本"),
        ("ж".encode("koi8-r"), "text/html; charset=koi8-r", "ж"),
        (b"\x80 \x93x\x94", "text/html; charset=iso-8859-1", "€ “x”"),
        (b"\x80", "text/html; charset=us-ascii", "€"),
        (b"\x80\xfe", "text/html; charset=iso-8859-9", "€ş"),
        ("镕".encode("gbk"), "text/html; charset=gb2312", "镕"),
        ("㐀".encode("gb18030"), "text/html; charset=GBK", "㐀"),
        ("①髙".encode("cp932"), "text/html; charset=Shift_JIS", "①髙"),
        ("①".encode("cp932"), "text/html; charset=x-sjis", "①"),
        ("①".encode("cp932"), "text/html; charset=shiftjis", "①"),
        (b"\x1b$)Cx", "text/html; charset=iso-2022-kr", "\x1b$)Cx"),
        ("똠".encode("cp949"), "text/html; charset=euc-kr", "똠"),
        ("똠".encode("cp949"), "text/html; charset=ks_c_5601-1987", "똠"),
        ("㗎".encode("big5hkscs"), "text/html; charset=big5", "㗎"),
        ("ก€".encode("cp874"), "text/html; charset=tis-620", "ก€"),
        ("ж".encode("cp1251"), "text/html; charset=x-cp1251", "ж"),
        ("é".encode("mac-roman"), "text/html; charset=x-mac-roman", "é"),
        ("א".encode("iso8859-8"), "text/html; charset=iso-8859-8-i", "א"),
        ("ü".encode("utf-16-le"), "text/plain; charset=unicode", "ü"),
        ("ü".encode(), "text/plain; charset=unicode-1-1-utf-8", "ü"),
        ("é".encode("cp850"), "text/plain; charset=cp850", "é"),
        ("ü".encode("utf-32-le"), "text/plain; charset=utf-32", "ü"),
        ("ü".encode("utf-16"), "text/plain", "ü"),
        ("ü".encode("utf-16-be"), "text/plain; charset=utf-16be", "ü"),
        ("ü".encode("utf-32"), "text/plain", "ü"),
        (b"\xef\xbb\xbfa", "text/plain; charset=latin-1", "a"),
        (b"a\xffb", "text/plain", "a\ufffdb"),
        (b"a\xff", "text/plain; charset=no-such-charset", "a\ufffd"),
        (b"a", "text/plain; charset=", "a"),
        (b"a", "text/plain; charset=\0", "a"),
        (b"YQ==", "text/plain; charset=base64", "YQ=="),
        (b"a\\x", "text/plain; charset=unicode_escape", "a\\x"),
        (b"a", "text/plain; charset=rot13", "a"),
        (b"a", "text/plain; charset=undefined", "a"),
        (b"+AGE-", "text/plain; charset=utf-7", "+AGE-"),
        (b"a\0b", "text/plain", None),
        (b"\x89PNG\r\n\x1a\n\0\0", "", None),
        (b"", "text/plain", ""),
    ],
)
def test_bytes_become_text(data: bytes, content_type: str, text: str | None) -> None:
    """By mark, declaration or UTF-8; a codec that is no charset is not used, and NUL means binary.

    P7: a label is read as browsers read it.
    """
    assert FetchedBody(data, truncated=False).text(content_type) == text


@given(st.binary(max_size=200), st.booleans(), st.text(max_size=30))
def test_decoding_never_raises(data: bytes, truncated: bool, charset: str) -> None:  # noqa: FBT001  # given
    """Whatever the bytes and the declared charset."""
    FetchedBody(data, truncated).text(f"text/plain; charset={charset}")


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words("""
ascii us-ascii utf8 utf-8-sig utf-16 utf-16le utf-32 utf-7 latin-1 cp1252 windows-1252 windows-1251
koi8-r koi8-u gb2312 gbk gb18030 big5 big5-hkscs euc-jp euc-kr
iso-2022-jp iso-2022-kr shift_jis cp932 cp949
macintosh mac-cyrillic tis-620 ibm866 cp037 hz idna punycode raw_unicode_escape unicode_escape undefined
mbcs oem uu quopri hex bz2 zip base64 rot13 iso-8859-15 iso-8859-16 iso8859-8-i palmos johab ptcp154
""")


@pytest.mark.parametrize("name", NAMES)
@given(st.binary(max_size=40), st.booleans())
def test_no_charset_python_knows_can_raise(name: str, data: bytes, truncated: bool) -> None:  # noqa: FBT001  # given
    """Some of Python's codecs are no charsets and refuse, warn or unpack."""
    FetchedBody(data, truncated).text(f"text/plain; charset={name}")


def test_a_character_cut_by_the_bound_is_left_out() -> None:
    """C10: half a character is not shown as a broken one; in a whole body it is."""
    half = "aü".encode()[:-1]
    assert FetchedBody(half, truncated=True).text("") == "a"
    assert FetchedBody(half, truncated=False).text("") == "a\ufffd"


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("", True),
        ("text/html; charset=utf-8", True),
        ("TEXT/Plain", True),
        ("application/json", True),
        ("application/ld+json;x=y", True),
        ("application/problem+json", True),
        ("application/xhtml+xml", True),
        ("application/x-ndjson", True),
        ("image/svg+xml", True),
        ("application/octet-stream", False),
        ("application/pdf", False),
        ("image/png", False),
        ("video/mp4", False),
        ("application/zip", False),
        ("text", False),
        ("nonsense", False),
    ],
)
def test_types_are_text_or_not(content_type: str, shown: bool) -> None:  # noqa: FBT001  # a column
    """Binary content is announced by its type, without reading it."""
    assert is_text(content_type) is shown
