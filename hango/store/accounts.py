"""Tenants, the people in them, and their keys.

A key is shown once, when it is made; only its SHA-256 is stored.  It has 256 random bits, so a slow
hash would protect nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from uuid import UUID

import attrs

from hango.codec import clean_text
from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.db.units import execute
from hango.domain import ApiKey, Role, Tenant, User, UserStatus, new_id
from hango.errors import AlreadyExists, LastOwner, NotFound, UniqueViolation
from hango.store import rows

INSERT_TENANT = QUERIES["insert_tenant"]
GET_TENANT_BY_SLUG = QUERIES["get_tenant_by_slug"]
INSERT_USER = QUERIES["insert_user"]
GET_USER_BY_EMAIL = QUERIES["get_user_by_email"]
GET_USER = QUERIES["get_user"]
LIST_USERS = QUERIES["list_users"]
LOCK_USER_AND_OWNERS = QUERIES["lock_user_and_owners"]
UPDATE_USER = QUERIES["update_user"]
LIST_KEYS = QUERIES["list_keys"]
REVOKE_KEY = QUERIES["revoke_key"]
INSERT_KEY = QUERIES["insert_key"]
LOCK_VALID_KEYS = QUERIES["lock_valid_keys"]
REVOKE_KEYS = QUERIES["revoke_keys"]
AUTHENTICATE = QUERIES["authenticate"]
TOUCH_KEY = QUERIES["touch_key"]

KEY_PREFIX = "hgo_"
_SHOWN = len(KEY_PREFIX) + 6  # characters stored, so that a user can recognise a key


@attrs.frozen
class NewKey:
    """A key just made: the only time its text is known."""

    id: UUID
    user_id: UUID
    key: str = attrs.field(repr=False)


@attrs.frozen
class KeyUse:
    """A key that was presented, and its user."""

    key_id: UUID
    user: User
    revoked: bool

    @property
    def refusal(self) -> str:
        """Why the key may not be used; empty if it may."""
        if self.revoked:
            return "revoked"
        return "" if self.user.status is UserStatus.ACTIVE else f"of a user who is {self.user.status}"


@attrs.define
class Accounts:
    """Who may act."""

    _pool: Pool

    async def authenticate(self, key: str) -> KeyUse | None:
        """Return whose key this is, and whether it may be used; None if it is nobody's.

        Records the last use of a key that may, at most once a minute.
        """
        row = await self._pool.one(AUTHENTICATE, secret_sha256=_digest(key))
        if row is None:
            return None
        use = KeyUse(row["key_id"], rows.user(row), revoked=row["revoked"])
        if row["stale"] and not use.refusal:
            await self._pool.write(TOUCH_KEY, key_id=use.key_id)
        return use

    async def create_tenant(self, slug: str, name: str) -> Tenant:
        """Create a tenant.

        Raises:
            AlreadyExists: the slug is taken.
        """
        try:
            created = await self._pool.write(
                INSERT_TENANT, tenant_id=new_id(), slug=slug, name=clean_text(name), audit_id=new_id()
            )
        except UniqueViolation:
            raise AlreadyExists(f"there is a tenant {slug!r} already") from None
        return rows.tenant(created[0])

    async def tenant(self, slug: str) -> Tenant:
        """Return the tenant of that slug.

        Raises:
            NotFound: there is none.
        """
        row = await self._pool.one(GET_TENANT_BY_SLUG, slug=clean_text(slug))
        if row is None:
            raise NotFound(f"there is no tenant {slug!r}")
        return rows.tenant(row)

    async def create_user(self, tenant_id: UUID, email: str, role: Role, *, actor: UUID | None) -> User:
        """Create an active user; *actor* is None for the operator's shell.

        Raises:
            AlreadyExists: the tenant has a user of that address, however capitalized.
        """
        try:
            created = await self._pool.write(
                INSERT_USER,
                user_id=new_id(),
                tenant_id=tenant_id,
                email=clean_text(email),
                role=role,
                actor_id=actor,
                audit_id=new_id(),
            )
        except UniqueViolation:
            raise AlreadyExists(f"there is a user {email!r} already") from None
        return rows.user(created[0])

    async def user(self, tenant_id: UUID, email: str) -> User:
        """Return the tenant's user of that address.

        Raises:
            NotFound: there is none.
        """
        row = await self._pool.one(GET_USER_BY_EMAIL, tenant_id=tenant_id, email=clean_text(email))
        if row is None:
            raise NotFound(f"there is no user {email!r}")
        return rows.user(row)

    async def user_by_id(self, tenant_id: UUID, user_id: UUID) -> User:
        """Return one user.

        Raises:
            NotFound: the tenant has no such user.
        """
        row = await self._pool.one(GET_USER, tenant_id=tenant_id, user_id=user_id)
        if row is None:
            raise NotFound("there is no such user")
        return rows.user(row)

    async def users(
        self, tenant_id: UUID, *, before: UUID | None = None, limit: int = 50
    ) -> Sequence[User]:
        """Return up to *limit* users older than *before*, newest first."""
        found = await self._pool.rows(LIST_USERS, tenant_id=tenant_id, before=before, limit=limit)
        return [rows.user(row) for row in found]

    async def update_user(
        self,
        tenant_id: UUID,
        user_id: UUID,
        change: Callable[[User], User],
        *,
        actor: UUID,
        keep_keys: bool = False,
    ) -> User:
        """Give a user another role or status.

        A promotion revokes the user's keys: those who made or have them would be promoted, too.

        Args:
            tenant_id: of the user.
            user_id: the user.
            change: is given the user as stored, under lock, and returns them with the new role and
                status.  If it raises, nothing is changed.
            actor: the user who does it.
            keep_keys: do not revoke keys in a promotion.

        Raises:
            NotFound: the tenant has no such user.
            LastOwner: the tenant would have no active owner any more.
        """

        async def update(connection: Connection) -> User:
            async with connection.transaction():
                locked = await execute(
                    connection, LOCK_USER_AND_OWNERS, tenant_id=tenant_id, user_id=user_id
                )
                users = {row["id"]: rows.user(row) for row in locked}
                if user_id not in users:
                    raise NotFound("there is no such user")
                user = users.pop(user_id)
                changed = change(user)
                if changed == user:
                    return user
                if _owns(user) and not _owns(changed) and not users:
                    raise LastOwner("a tenant must have an active owner")
                if changed.role.rank > user.role.rank and not keep_keys:
                    await _revoke_keys(connection, user, actor)
                stored = await execute(
                    connection,
                    UPDATE_USER,
                    tenant_id=tenant_id,
                    user_id=user_id,
                    role=changed.role,
                    status=changed.status,
                    actor_id=actor,
                    audit_id=new_id(),
                )
                return rows.user(stored[0])

        return await self._pool.unit(update)

    async def keys(
        self, tenant_id: UUID, user_id: UUID, *, before: UUID | None = None, limit: int = 50
    ) -> Sequence[ApiKey]:
        """Return up to *limit* keys of a user older than *before*, newest first."""
        found = await self._pool.rows(
            LIST_KEYS, tenant_id=tenant_id, user_id=user_id, before=before, limit=limit
        )
        return [rows.api_key(row) for row in found]

    async def revoke_key(self, tenant_id: UUID, user_id: UUID, key_id: UUID, *, actor: UUID) -> None:
        """End a key; ending it again changes nothing.

        Raises:
            NotFound: the user has no such key.
        """
        revoked = await self._pool.write(
            REVOKE_KEY,
            tenant_id=tenant_id,
            user_id=user_id,
            key_id=key_id,
            actor_id=actor,
            audit_id=new_id(),
        )
        if not revoked:
            raise NotFound("there is no such key")

    async def create_key(
        self, tenant_id: UUID, user_id: UUID, *, actor: UUID | None, role: Role | None = None
    ) -> NewKey:
        """Make a key for a user of the tenant; if *role* is given, only while they have that role.

        Raises:
            NotFound: the tenant has no such user, or they have another role by now.
        """
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        created = await self._pool.write(
            INSERT_KEY,
            key_id=new_id(),
            tenant_id=tenant_id,
            user_id=user_id,
            secret_sha256=_digest(key),
            prefix=key[:_SHOWN],
            role=role,
            actor_id=actor,
            audit_id=new_id(),
        )
        if not created:
            raise NotFound("there is no such user")
        return NewKey(created[0]["id"], user_id, key)


async def _revoke_keys(connection: Connection, user: User, actor: UUID) -> None:
    keys = [row["id"] for row in await execute(connection, LOCK_VALID_KEYS, user_id=user.id)]
    if keys:
        await execute(
            connection,
            REVOKE_KEYS,
            tenant_id=user.tenant_id,
            key_ids=keys,
            actor_id=actor,
            audit_ids=[new_id() for _ in keys],
        )


def _owns(user: User) -> bool:
    return user.role is Role.OWNER and user.status is UserStatus.ACTIVE


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
