"""The users' own drivers, each once, for all that stands on a database: `fenced`, `sql` and `lockfree`.

Nothing in here knows tokens, keys or events: a *wire* begins and ends transactions and runs statements on a connection of
the user's, in threads and in asyncio alike, and says truthfully whether a transaction is open.
"""
