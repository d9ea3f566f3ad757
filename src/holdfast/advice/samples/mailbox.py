from holdfast.lockfree import mailbox


class Account:
    """One actor a key. Its messages are handled one at a time, so its state needs no lock."""

    def __init__(self, key):
        self.balance = 0

    def receive(self, cents):
        if self.balance + cents < 0:
            return "refused"
        self.balance += cents
        return self.balance


with mailbox.Mailboxes(Account) as accounts:
    accounts.tell("alice", 100)
    assert accounts.ask("alice", -30) == 70
    assert accounts.ask("alice", -90) == "refused"
