"""Tools that raise what no tool should.  A new one is a function here, named at the end."""

from __future__ import annotations

import sys
from typing import NoReturn

from hango.errors import ProviderError, StateConflict, StoreUnavailable

SECRET = "s3cr3t-Value-0123456789"  # noqa: S105 - so that its way can be followed


class UnreadableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        """Fail, with more than an error."""
        raise SystemExit(self.args)

    __repr__ = __str__


class Sulking(type):
    """A kind of classes that do not tell their names."""

    def __getattribute__(cls, name: str) -> object:
        """Fail for what tells who a class is."""
        if name in {"__name__", "__qualname__", "__module__"}:
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class NamelessError(Exception, metaclass=Sulking):
    """An error whose type cannot be told."""


def raise_error() -> NoReturn:
    """Fail as tools do."""
    raise ValueError("no such city")


def raise_secret() -> NoReturn:
    """Tell a secret in the text of an error."""
    raise RuntimeError(f"GET failed: {{'Authorization': 'Bearer {SECRET}'}} password={SECRET}")


def raise_nul() -> NoReturn:
    """Fail with what no database holds."""
    raise ValueError("a\0b \ud800")


def raise_megabytes() -> NoReturn:
    """Fail at length."""
    raise ValueError("x" * 20_000_000)


def raise_unreadable() -> NoReturn:
    """Fail with an error that cannot be read."""
    raise UnreadableError


def raise_nameless() -> NoReturn:
    """Fail with an error whose type has no name."""
    raise NamelessError("nameless")


def raise_exit() -> NoReturn:
    """End the program, as a script does."""
    sys.exit(3)


def raise_interrupt() -> NoReturn:
    """Do as if somebody had pressed Ctrl-C."""
    raise KeyboardInterrupt


def raise_generator_exit() -> NoReturn:
    """End a generator that there is not."""
    raise GeneratorExit


def raise_stop() -> NoReturn:
    """End an iteration that there is not."""
    raise StopIteration(1)


def raise_group() -> NoReturn:
    """Fail in several ways at once, some of them no errors."""
    raise BaseExceptionGroup("all", [ValueError("one"), SystemExit("two"), KeyboardInterrupt()])


def raise_deep_group() -> NoReturn:
    """Fail far inside."""
    error: Exception = ValueError("inside")
    for _ in range(5000):
        error = ExceptionGroup("around", [error])
    raise error


def raise_from_itself() -> NoReturn:
    """Fail because of the failure."""
    error = ValueError("circle")
    error.__context__ = ValueError("other", error)
    error.__cause__ = error
    raise error


def recurse() -> object:
    """Call oneself for ever."""
    return recurse()


def leave_with_the_run_s_name() -> NoReturn:
    """Raise the error that means that somebody else has the run."""
    raise StateConflict("the run is mine")


def say_the_database_is_away() -> NoReturn:
    """Raise the error that an execution gives up at."""
    raise StoreUnavailable("no database")


def say_the_provider_broke() -> NoReturn:
    """Raise the error that a model call fails with."""
    raise ProviderError("overloaded", retryable=True)


RAISING = (
    raise_error,
    raise_secret,
    raise_nul,
    raise_megabytes,
    raise_unreadable,
    raise_nameless,
    raise_exit,
    raise_interrupt,
    raise_generator_exit,
    raise_stop,
    raise_group,
    raise_deep_group,
    raise_from_itself,
    recurse,
    leave_with_the_run_s_name,
    say_the_database_is_away,
    say_the_provider_broke,
)
