"""Do you need the lock at all? Real tools that make it unnecessary."""

from ..errors import Conflict, GaveUp, InFlight, KeyReused, MailboxFull, Missing, NotOwner, Unstorable

__all__ = ["Conflict", "GaveUp", "InFlight", "KeyReused", "MailboxFull", "Missing", "NotOwner", "Unstorable"]
