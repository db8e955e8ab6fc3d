"""Everything that is in Postgres, and the only asyncio in hango.

Statements live in ``sql/queries``, one file an aggregate; the classes here give them types.
"""
