"""Answers that are not what they say they are, for tests of whoever reads answers of foreign code."""

from __future__ import annotations

from typing import NoReturn
from unittest.mock import Mock


class EqualsEverything:
    """Says that it equals whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        """Agree."""
        return True

    def __hash__(self) -> int:
        """Be as good as anything."""
        return hash("allow")


class DeceptiveStr(str):
    """A text that claims to equal every other, and whose methods are of no use."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Agree."""
        return True

    def __ne__(self, other: object) -> bool:
        """Agree."""
        return False

    def __hash__(self) -> int:
        """Be as good as anything."""
        return hash("allow")

    def __str__(self) -> str:
        """Say something else."""
        return "allow"

    def __len__(self) -> NoReturn:
        """Have no length."""
        raise ValueError("no length")

    def __getitem__(self, key: object) -> NoReturn:
        """Have no parts."""
        raise ValueError("no parts")

    def strip(self, _: str | None = None) -> NoReturn:
        """Have no ends."""
        raise ValueError("no ends")


class TupleWithoutLength(tuple[object, ...]):
    """A tuple that does not tell what is in it."""

    __slots__ = ()

    def __len__(self) -> NoReturn:
        """Have no length."""
        raise ValueError("no length")

    def __getitem__(self, key: object) -> NoReturn:
        """Have no parts."""
        raise ValueError("no parts")


class WithoutAttributes:
    """A function whose attributes cannot be asked for."""

    def __call__(self, _: object) -> str:
        """Permit."""
        return "allow"

    def __getattr__(self, name: str) -> NoReturn:
        """Have no attributes, and say so in the wrong way."""
        raise RuntimeError(f"no {name} here")


class WithoutClass:
    """An object that does not let itself be asked what it is."""

    @property  # type: ignore[misc]  # the misbehaviour under test
    def __class__(self) -> NoReturn:  # type: ignore[override]  # as above
        """Be nothing."""
        raise RuntimeError("no class")


def mimic_text() -> object:
    """Return an object that claims to be a text, and is none."""
    return Mock(spec=str)
