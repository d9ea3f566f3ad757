"""The admin, and a view of each kind."""

from typing import Any

from django.contrib import admin
from django.http import HttpResponse
from django.urls import path

from holdfast.contrib.django import alocks, lock, locks


def plain(request: Any, number: int) -> Any:
    with locks.lock(f"order:{number}", timeout=0) as lease:
        return HttpResponse(lease.name)


@lock("order:{number}", timeout=0)
async def asynchronous(request: Any, number: int) -> Any:
    return HttpResponse(str((await alocks.inspect(f"order:{number}")).used))


urlpatterns = [
    path("admin/", admin.site.urls),
    path("plain/<int:number>", plain),
    path("asynchronous/<int:number>", asynchronous),
]
