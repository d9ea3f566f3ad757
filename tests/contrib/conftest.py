"""The real Redis of that store's own tests, for the frameworks."""

from ..stores.redis.conftest import redis, shared_redis

__all__ = ["redis", "shared_redis"]  # fixtures
