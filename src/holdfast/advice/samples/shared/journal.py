def withdraw(account, cents, attempts=10):
    """Decides on what it has read, and appends only if nothing was appended since."""
    for _ in range(attempts):
        balance, version = events.replay(account, lambda balance, event: balance + event["cents"], 0)
        if balance < cents:
            return False
        try:
            events.append(account, {"cents": -cents}, expected=version)
            return True
        except journal.Conflict:
            continue  # somebody was faster: read on, and decide again
    raise RuntimeError("too many conflicts: this account is busy, let it have one writer")


events.append("account:42", {"cents": 100}, expected=None)
assert withdraw("account:42", 30)
