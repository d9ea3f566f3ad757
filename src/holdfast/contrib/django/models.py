"""No table: what the admin page is about, and who may do what there."""

from __future__ import annotations

from django.db import models


class Lock(models.Model):
    """A lock as the store sees it. It is never read from a database."""

    name = models.TextField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("evict_lock", "Can put out the holder of a lock"),)

    def __str__(self) -> str:
        return str(self.name)
