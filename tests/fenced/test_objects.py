"""Guarded objects on a real S3 API pass the suite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from holdfast import fenced
from holdfast.errors import Misuse, StaleToken
from holdfast.fenced import aio
from holdfast.fenced.mark import mark_of
from holdfast.fenced.objects import content_of
from holdfast.testing import guards

pytestmark = pytest.mark.server

BUCKET = "bank"


@pytest.fixture(scope="module")
def s3(seaweedfs: str) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        endpoint_url=seaweedfs,
        aws_access_key_id="holdfast",
        aws_secret_access_key="holdfast",
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32),
    )
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()


class ObjectUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, client: Any) -> None:
        self.client = client

    def object(self, resource: str, token: int) -> fenced.Object:
        mark = mark_of((resource, token))
        return fenced.Object(self.client, BUCKET, self.key(resource), mark)

    def key(self, resource: str) -> str:
        return sha256(resource.encode()).hexdigest()

    def read(self, resource: str, token: int) -> int | None:
        content = self.object(resource, token).read()
        return None if content is None else int(content)

    def write(self, resource: str, token: int, value: int) -> None:
        self.object(resource, token).write(b"%d" % value)

    def seen(self, resource: str) -> int:
        try:
            head = self.client.head_object(Bucket=BUCKET, Key=self.key(resource))
        except self.client.exceptions.ClientError:
            return 0
        return int(head["Metadata"]["holdfast-token"])

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_guarded_object(check: guards.Check, s3: Any) -> None:
    check(ObjectUnderTest(s3))


def test_reading_moves_the_etag_although_the_content_is_the_same(s3: Any) -> None:
    """Kills the mark in the metadata alone: the ETag would stay, and with it an older holder's right to write."""
    key = uuid4().hex
    fenced.Object(s3, BUCKET, key, ("r", 1)).write(b"same")
    before = s3.head_object(Bucket=BUCKET, Key=key)["ETag"]
    assert fenced.Object(s3, BUCKET, key, ("r", 2)).read() == b"same"
    assert s3.head_object(Bucket=BUCKET, Key=key)["ETag"] != before
    plain = uuid4().hex
    for token in ("1", "2"):
        s3.put_object(Bucket=BUCKET, Key=plain, Body=b"same", Metadata={"token": token})
        etags = {s3.head_object(Bucket=BUCKET, Key=plain)["ETag"]}
    assert etags == {s3.put_object(Bucket=BUCKET, Key=plain, Body=b"same")["ETag"]}, "the trap is gone?"


def test_an_object_from_before_is_adopted_and_a_deleted_one_keeps_its_mark(s3: Any) -> None:
    key = uuid4().hex
    s3.put_object(Bucket=BUCKET, Key=key, Body=b"from before")
    guard = fenced.Object(s3, BUCKET, key, ("r", 2))
    assert guard.read() == b"from before"
    assert content_of(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()) == b"from before"
    assert guard.delete()
    assert not guard.delete()
    assert guard.read() is None
    with pytest.raises(StaleToken, match="since 20"):
        fenced.Object(s3, BUCKET, key, ("r", 1)).read()
    with pytest.raises(Misuse, match="guarded by the lock 'r', not by 'q'"):
        fenced.Object(s3, BUCKET, key, ("q", 3)).write(b"")
    s3.put_object(Bucket=BUCKET, Key=key, Body=b'{"holdfast": 1, "token": -1}\n')
    with pytest.raises(Misuse, match="damaged"):
        guard.write(b"")


def test_what_cannot_be_is_refused(s3: Any) -> None:
    with pytest.raises(Misuse, match="bytes"):
        fenced.Object(s3, BUCKET, "x", ("r", 1)).write("text")  # type: ignore[arg-type]  # the point
    with pytest.raises(Misuse, match="boto3"):
        fenced.Object(object(), BUCKET, "x", ("r", 1))
    with pytest.raises(s3.exceptions.ClientError, match="NoSuchBucket"):
        fenced.Object(s3, "nowhere", "x", ("r", 1)).write(b"")


def test_the_asyncio_names(s3: Any) -> None:
    async def work() -> None:
        guard = aio.Object(s3, BUCKET, uuid4().hex, ("r", 1))
        await guard.write(b"x")
        assert await guard.read() == b"x"
        assert await guard.delete()

    asyncio.run(work())
