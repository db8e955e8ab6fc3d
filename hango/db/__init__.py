"""Connections to Postgres and the statements sent over them; the only room that speaks asyncio.

Used by `hango.store`, and by whatever opens a pool or listens to notifications.
"""
