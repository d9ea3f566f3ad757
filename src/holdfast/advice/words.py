"""What is asked and what is advised, in words."""

ASKED = {
    "idempotent": "Can the operation be made idempotent, so that doing it twice is the same as doing it once?",
    "conflicts": "How often do two of them want the same thing at the same moment?",
    "storage-check": "Can the storage you write to check something at the moment of the write?",
    "shard": "Can the work be divided by an entity (customer, account, document), each handled apart from the others?",
    "history": "Does what happened matter as much as what is now: an audit, undo, figures made up later?",
    "one-process": "Does one process handle all of it?",
    "goal": "What is the lock for: to save work (efficiency), or to keep data right (correctness)?",
    "ttl-predictable": "Do you know how long the work takes, and is that short?",
}

WHY = {
    "idempotent": "What may be done twice needs no exclusion at all: whoever comes second finds it done.",
    "conflicts": "If hardly anybody collides, noticing a collision is cheaper than preventing it.",
    "storage-check": (
        "Only the storage can refuse a write that comes too late: a process can be stopped between its last check and its "
        "write, for any length of time, and not know."
    ),
    "shard": "Where every entity has one writer, there is nothing left to exclude.",
    "history": "Events are appended, never changed, so writers meet only at the end of a stream.",
    "one-process": "Inside one process a mailbox is enough; between processes, ownership has to be kept somewhere.",
    "goal": "Most locks only save work. A lock that fails then costs a little; one that guards data costs the data.",
    "ttl-predictable": (
        "A lock that nobody checks at the storage is only as good as its ttl: it must outlast the work, pauses included."
    ),
}

MEANS = {
    "idempotent": {
        "yes": "A key for each request does what the lock was to do: the first runs, the others get its result.",
        "no": "Then two of them at once could do harm, and somebody has to notice.",
    },
    "conflicts": {
        "rare": "Then let them work, and have the loser of the rare race try again.",
        "frequent": "Then trying again would waste most of the work: better to have them take turns.",
    },
    "storage-check": {
        "version": "A database that updates WHERE version = … refuses whoever has read something old.",
        "token": "It can keep the highest token it has seen, and refuse a lower one.",
        "no": "Then nothing stops a late write: what remains can only make it less likely.",
    },
    "shard": {
        "yes": "Then each entity can have one owner at a time.",
        "no": "Then everybody wants the same thing, and has to take turns.",
    },
    "history": {
        "yes": "Then keep the events, and let the state be what they come to.",
        "no": "Then the state alone is enough.",
    },
    "one-process": {
        "yes": "Then messages wait in a mailbox for each key, and are handled one at a time.",
        "no": "Then partitions have owners, by leases whose tokens the storage can check.",
    },
    "goal": {
        "efficiency": "A failure means that something is done twice now and then.",
        "correctness": "A failure means wrong data, so the last word must be the storage's.",
    },
    "ttl-predictable": {
        "yes": "Then a ttl well above it makes two at once unlikely. Not impossible.",
        "no": "Then no ttl is right: too short, and two are inside; too long, and a crash stops everybody.",
    },
}

TITLES = {
    "idempotency": "Use an idempotency key for each request",
    "optimistic": "Use optimistic concurrency: a version in the row",
    "fencing": "Use a lock whose token the storage checks",
    "partition": "Use one writer a key: partitions with owners",
    "journal": "Use a journal of events",
    "mailbox": "Use a mailbox for each key",
    "simple-lock": "A plain lock is fine",
    "careful-lock": "A lock is acceptable, with its limits",
    "redesign": "This design needs changing",
}

ADVICE = {
    "idempotency": "The first to come with a key does the work, and its result is kept; every other is given that result.",
    "optimistic": "Read the version with the data, write only if it is still the same, and try again if it is not.",
    "fencing": "Take turns by a lock, and give its token with every read and write: a holder that was overtaken is refused.",
    "partition": "Every key belongs to one worker at a time. Its messages are handled in order, and what comes late is fenced.",
    "journal": "Append what happened at the version you have read. Of two who append at one version, one is told.",
    "mailbox": "An actor has its state to itself, because its messages are handled one after the other.",
    "simple-lock": "One does the work and the others skip it or wait. Let a second run be a waste, not a harm.",
    "careful-lock": "Keep it short, check the lease right before the step that cannot be undone, and write down what you did.",
    "redesign": (
        "It must be right, the storage cannot check anything, and nobody knows how long the work takes: no lock makes that "
        "safe, this library's included. Change one of the three: write through something that can check a token (a row in a "
        "database you own, in front of the service), make the operation idempotent (ask the service for an idempotency key), "
        "or divide the work so that each part has one owner, and let that owner record what it is about to do."
    ),
}

LIMITS = {
    "idempotency": "Keys must be kept as long as a request may be repeated. Effects outside the database need the key too.",
    "optimistic": "Under many conflicts most of the work is thrown away. Bound the number of attempts.",
    "fencing": "Whatever does not check the token (an e-mail, a payment without a key) is not protected.",
    "partition": "A key waits while its partition changes hands. Messages come at least once: keep the effects fenced.",
    "journal": "Events cannot be taken back, only made up for. Long streams need snapshots.",
    "mailbox": "A mailbox ends with its process, unless its state is in a journal. It is bounded: senders may be refused.",
    "simple-lock": "Two may be inside for a moment, after a pause or a failover. That was your answer: it costs only work.",
    "careful-lock": "A process that is stopped for longer than the ttl, just before its write, still writes. Nothing notices.",
    "redesign": "There is no sample: code is not what is missing.",
}
