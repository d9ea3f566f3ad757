"""The locks in Django's admin: who holds what, for how long, who waits; and, for who may, putting out a holder.

What is shown is what everybody may see (owner, token, age): the secrets that release a lock never leave the process that has it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from ...claim import printable
from ...errors import HoldfastError, Misuse
from ...sync import Locks
from . import urls_of_stores
from .connections import locks
from .models import Lock

MOST = 200  # names on a page


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):
    """Read-only but for one button, which wants the permission `holdfast.evict_lock`, a POST and a second look."""

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        guarded = self.admin_site.admin_view
        return [
            path("", guarded(self.changelist_view), name="holdfast_lock_changelist"),
            path("evict/", guarded(self.evict_view), name="holdfast_lock_evict"),
        ]

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias, prefix = request.GET.get("using", urls_of_stores.DEFAULT), request.GET.get("q", "")
        trouble, names, snapshots = "", [], []
        try:
            store = _store(alias)
            names = list(store.names(prefix))
            snapshots = [snapshot for name in names[:MOST] if (snapshot := store.inspect(name)).capacity]
        except HoldfastError as error:
            trouble = printable(str(error), 500)
        context = {
            **self.admin_site.each_context(request),
            "title": "Locks",
            "opts": self.model._meta,
            "aliases": urls_of_stores.aliases(),
            "using": alias,
            "prefix": prefix,
            "snapshots": snapshots,
            "more": max(0, len(names) - MOST),
            "trouble": trouble,
            "may_evict": _may_evict(request),
        }
        return TemplateResponse(request, "admin/holdfast/locks.html", context)

    def evict_view(self, request: Any) -> Any:
        """Asked once, it shows what will happen; confirmed, it does it, to the grant that was looked at and to no other."""
        if request.method != "POST" or not self.has_view_permission(request) or not _may_evict(request):
            raise PermissionDenied
        alias, name = request.POST.get("using", urls_of_stores.DEFAULT), request.POST.get("name", "")
        back = f"{reverse('admin:holdfast_lock_changelist', current_app=self.admin_site.name)}"
        try:
            token = int(request.POST.get("token", ""))
            store = _store(alias)
            if "confirmed" not in request.POST:
                holding = next((one for one in store.inspect(name).holders if one.token == token), None)
                if holding is not None:
                    context = {
                        **self.admin_site.each_context(request),
                        "title": "Put out the holder?",
                        "opts": self.model._meta,
                        "name": name,
                        "using": alias,
                        "holding": holding,
                    }
                    return TemplateResponse(request, "admin/holdfast/evict.html", context)
                past = None
            else:
                past = store.force_release(name, token=token)
        except ValueError as error:  # no number; or a Misuse
            messages.error(request, printable(str(error), 500))
            return HttpResponseRedirect(back)
        except HoldfastError as error:
            messages.error(request, printable(str(error), 500))
            return HttpResponseRedirect(back)
        if past is None:
            messages.warning(request, f"Nobody holds {name!r} with the token {token} any more.")
        else:
            self._note(request, name, f"evicted the holder of token {token}; token {past} outranks it")
            messages.success(
                request, f"The holder of {name!r} was evicted. Fenced storage: seal it with the token {past}."
            )
        return HttpResponseRedirect(back)

    def _note(self, request: Any, name: str, what: str) -> None:
        LogEntry.objects.create(
            user_id=request.user.pk,
            content_type_id=ContentType.objects.get_for_model(Lock, for_concrete_model=False).pk,
            object_id=name,
            object_repr=printable(name)[:200],
            action_flag=CHANGE,
            change_message=what,
        )


def _may_evict(request: Any) -> bool:
    return bool(request.user.has_perm("holdfast.evict_lock"))


def _store(alias: str) -> Locks:
    if alias not in urls_of_stores.aliases():
        raise Misuse("settings.HOLDFAST has no such store")
    return locks[alias]
