"""The same servers as for fenced storage."""

from ...fenced.conftest import mariadb, postgresql, redis_url, sqlite_file

__all__ = ["mariadb", "postgresql", "redis_url", "sqlite_file"]
