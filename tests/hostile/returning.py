"""Tools that return what no tool should.  A new one is a function here, named at the end."""

from __future__ import annotations

from datetime import UTC, datetime

import trio

from hango.domain import Result


class Text(str):
    """A text that is not measured, cut or joined."""

    __slots__ = ()

    def __len__(self) -> int:
        """Fail."""
        raise RuntimeError("no length")

    __getitem__ = __add__ = __bool__ = encode = __len__  # type: ignore[assignment]  # hostile in every way


class Unshowable:
    """An object that cannot be shown, compared, counted or walked."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError

    __repr__ = __str__
    __eq__ = __bool__ = __len__ = __iter__ = __str__  # type: ignore[assignment]  # hostile in every way
    __hash__ = None  # type: ignore[assignment]  # hostile in every way


class Lying:
    """An object that says it is a result."""

    @property  # type: ignore[misc]  # hostile in every way
    def __class__(self) -> type:
        """Lie."""
        return Result


def give_bytes() -> object:
    """Return what is no text."""
    return b"\xff"


def give_set() -> object:
    """Return what has no order."""
    return {1, 2}


def give_time() -> object:
    """Return what JSON has no word for."""
    return datetime.now(UTC)


def give_nan() -> object:
    """Return no number, deep inside."""
    return [{"a": [float("nan")]}]


def give_circle() -> object:
    """Return what holds itself."""
    circle: list[object] = []
    circle.append({"again": circle})
    return circle


def give_explosion() -> object:
    """Return little that is much when written down."""
    much: object = "x"
    for _ in range(40):
        much = [much, much]
    return much


def give_depth() -> object:
    """Return what is nested too deep."""
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    return deep


def give_unshowable() -> object:
    """Return what cannot even be shown."""
    return {"a": Unshowable()}


def give_lie() -> object:
    """Return what only says it is a result."""
    return Lying()


def give_type() -> object:
    """Return a class."""
    return Result


def give_generator() -> object:
    """Return what would have to be walked."""
    return (number for number in range(3))


def give_coroutine() -> object:
    """Return what would have to be awaited."""
    return trio.sleep(0)  # noqa: ASYNC105, ASYNC115 - the slip under test


def give_result_of_bytes() -> object:
    """Return a result that is not filled with text."""
    return Result(b"x")  # type: ignore[arg-type]  # what untyped tools do


def give_empty_error() -> object:
    """Return an error that says nothing."""
    return Result("", is_error=True)


# --- not so bad -----------------------------------------------------------------------------


def give_strange_text() -> object:
    """Return a text of a kind of its own: it is a text all the same."""
    return Text("strange")


def give_nothing() -> object:
    """Return nothing: that is no error."""
    return None


RETURNING = (
    give_bytes,
    give_set,
    give_time,
    give_nan,
    give_circle,
    give_explosion,
    give_depth,
    give_unshowable,
    give_lie,
    give_type,
    give_generator,
    give_coroutine,
    give_result_of_bytes,
    give_empty_error,
)
STRANGE = (give_strange_text, give_nothing)
