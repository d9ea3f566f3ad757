def withdraw(cents):
    """Written only if nobody wrote since it was read; else read and decided again; `Conflict` in the end."""

    def decide(row):  # may be called several times: let it compute, and do nothing else
        if row["balance"] < cents:
            raise ValueError("not enough money")  # nothing is written
        return {"balance": row["balance"] - cents}

    return optimistic.update(db, "account", 42, decide)


assert withdraw(10)["balance"] <= 90
