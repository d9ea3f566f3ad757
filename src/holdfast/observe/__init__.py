"""Events, made visible. Each observer subscribes to the one hook; none can break a lock."""

from .log import log_events

__all__ = ["log_events"]
