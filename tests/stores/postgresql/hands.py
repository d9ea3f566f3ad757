"""What the tests of PostgreSQL share."""

from __future__ import annotations

BACKENDS = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast'"
