"""SQLAlchemy's `version_id_col` and our versions are one number: neither overwrites what the other has written."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from holdfast import Conflict
from holdfast.lockfree import optimistic

pytestmark = pytest.mark.server
DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}


class Base(DeclarativeBase): ...


class Account(Base):
    __tablename__ = "mapped_account"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    balance: Mapped[int]
    version: Mapped[int] = mapped_column(nullable=False)
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012  # as SQLAlchemy wants it


@pytest.mark.parametrize("kind", DRIVERS)
def test_who_was_second_is_told_on_either_side(kind: str, request: pytest.FixtureRequest) -> None:
    url = make_url(request.getfixturevalue(kind)).set(drivername=DRIVERS[kind])
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    try:
        with Session(engine) as session:
            session.add(Account(id=1, balance=100))
            session.commit()
        with Session(engine) as session, engine.connect() as connection:
            account = session.get_one(Account, 1)
            optimistic.update(connection, "mapped_account", 1, lambda row: {"balance": row["balance"] - 30})
            account.balance = 0
            with pytest.raises(StaleDataError):
                session.commit()
            session.rollback()
            account.balance -= 20
            session.commit()
            with pytest.raises(Conflict) as told:
                optimistic.update(connection, "mapped_account", 1, lambda row: {"balance": 0}, expected=2)
            assert told.value.seen == (3,)
            row = optimistic.update(connection, "mapped_account", 1, lambda row: {"balance": row["balance"] + 1})
            assert (row["balance"], row["version"]) == (51, 4)
    finally:
        Base.metadata.drop_all(engine)
        engine.dispose()
