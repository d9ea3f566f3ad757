"""Do you need the lock at all? Real tools that make it unnecessary."""
