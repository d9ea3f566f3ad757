"""The same servers as for fenced storage."""

from ...fenced.conftest import etcd_url, mariadb, postgresql, redis_url, sqlite_file, zookeeper_hosts

__all__ = ["etcd_url", "mariadb", "postgresql", "redis_url", "sqlite_file", "zookeeper_hosts"]
