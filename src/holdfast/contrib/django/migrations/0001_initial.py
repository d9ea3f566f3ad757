"""The fences of `fenced.atomic()`, and the tables of the stores that are in this database."""

from django.db import migrations, models

from holdfast.contrib.django.operations import CreateStores
from holdfast.fenced.triggers.django import CreateFences


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        CreateFences(),
        CreateStores(),
        migrations.CreateModel(
            name="Lock",
            fields=[("name", models.TextField(primary_key=True, serialize=False))],
            options={
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (("evict_lock", "Can put out the holder of a lock"),),
            },
        ),
    )
