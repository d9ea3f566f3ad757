"""What etcd says when it does not do as asked, and what people should read instead."""

from __future__ import annotations

from ...errors import HoldfastError, Misuse, Unavailable
from .channel import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    Status,
)


class Refused(Exception):
    """etcd answered, and the answer is no. Nothing was changed."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.code, self.message = status

    @property
    def is_login_stale(self) -> bool:
        """Its token ran out, or users and roles were changed since: to log in again helps."""
        return self.code == UNAUTHENTICATED or "revision of auth store is old" in self.message

    @property
    def is_lease_gone(self) -> bool:
        return self.code == NOT_FOUND and "lease not found" in self.message


_ETCDS_OWN = {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAUTHENTICATED}


def failure(status: Status, where: str) -> Exception:
    """A refusal by etcd itself; or Unavailable, for no leader, no quorum, no time."""
    if status.code in _ETCDS_OWN:
        return Refused(status)
    return Unavailable(f"etcd at {where} could not answer: {status.message or f'gRPC status {status.code}'}")


def explained(refused: Refused, where: str, prefix: str) -> HoldfastError:
    said = refused.message
    if refused.code == PERMISSION_DENIED:
        return Misuse(
            f"etcd at {where} does not let this user touch keys under {prefix!r} ({said}): see docs/etcd.md, roles"
        )
    if "user name is empty" in said:
        return Misuse(f"etcd at {where} wants a login: write it into the URL, as in etcd://user:password@host")
    if "authentication failed" in said or "authentication is not enabled" in said:
        return Misuse(f"etcd at {where} refused the login of the URL: {said}")
    if refused.code == RESOURCE_EXHAUSTED and "space exceeded" in said:
        return Unavailable(
            f"etcd at {where} is full and refuses all writes ({said}): compact and defragment it, raise its quota, then "
            "`etcdctl alarm disarm`"
        )
    return Unavailable(f"etcd at {where} refused: {said or f'gRPC status {refused.code}'}")


def garbled(error: Exception, where: str) -> Unavailable:
    return Unavailable(f"what answers at {where} does not speak as etcd does: {error}")
