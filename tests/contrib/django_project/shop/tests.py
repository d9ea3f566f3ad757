"""The project's own tests, by Django's test runner: run by tests/contrib/test_django.py on several databases."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import AsyncClient, Client, TestCase, override_settings
from django.urls import reverse

from holdfast import Misuse, NotAcquired, StaleToken
from holdfast.contrib.django import alocks, fenced, lock, locks, once, urls_of_stores

from .models import Account


@lock("account:{number}", timeout=0)
def deposit(number: int, amount: int) -> int:
    account, _ = Account.objects.get_or_create(pk=number)
    account.balance += amount
    account.save()
    return int(account.balance)


@once("nightly")
def nightly() -> str:
    return "ran"


@once("nightly", otherwise=lambda error: f"skipped {error.name}")
async def nightly_too() -> str:
    return "ran"


class Locks(TestCase):
    def test_under_the_test_runner_the_locks_are_in_memory(self) -> None:
        self.assertEqual(locks.traits.scope, "process")
        with locks.lock("x"):
            self.assertEqual(locks.names(), ["x"])

    def test_a_function_runs_under_the_lock_that_its_arguments_name(self) -> None:
        self.assertEqual(deposit(1, 10), 10)
        with locks.lock("account:1"), self.assertRaises(NotAcquired):
            deposit(1, 10)
        with locks.lock("account:1"):
            self.assertEqual(deposit(2, 5), 5)

    def test_a_job_that_runs_elsewhere_is_skipped(self) -> None:
        self.assertEqual(nightly(), "ran")
        with locks.lock("nightly"):
            self.assertIsNone(nightly())

    async def test_coroutine_functions_use_the_same_locks_without_blocking(self) -> None:
        self.assertEqual(await nightly_too(), "ran")
        async with alocks.lock("nightly"):
            self.assertEqual(await nightly_too(), "skipped nightly")

    def test_a_lock_is_no_data_and_is_not_rolled_back(self) -> None:
        lease = locks.lock("x").acquire()
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            raise ZeroDivisionError
        lease.check()
        self.assertIsNone(locks.lock("x").try_acquire())
        lease.release()

    def test_a_stale_token_changes_nothing(self) -> None:
        old = locks.lock("account:1").acquire()
        locks.force_release("account:1", token=old.token)
        with locks.lock("account:1") as new, fenced.atomic(new):
            Account.objects.create(pk=1, balance=100)
        with self.assertRaises(StaleToken), fenced.atomic(old):
            Account.objects.filter(pk=1).update(balance=0)
        self.assertEqual(Account.objects.get(pk=1).balance, 100)

    def test_fenced_transactions_are_the_outermost(self) -> None:
        with locks.lock("x") as lease, transaction.atomic(), self.assertRaises(Misuse), fenced.atomic(lease):
            pass

    def test_other_settings_are_other_locks(self) -> None:
        with (
            locks.lock("x"),
            override_settings(HOLDFAST={"default": {"URL": "memory://others"}, "b": {"URL": "memory://b"}}),
        ):
            with locks.lock("x", timeout=0):
                self.assertEqual(locks["b"].names(), [])
            with self.assertRaises(Misuse):
                locks["c"]
        self.assertEqual(deposit(1, 10), 10)

    def test_views_of_both_kinds_run_under_locks(self) -> None:
        self.assertEqual(Client().get("/plain/42").content, b"order:42")
        with locks.lock("order:42"), self.assertRaises(NotAcquired):
            Client().get("/plain/42")

    async def test_asynchronous_views_run_under_locks(self) -> None:
        self.assertEqual((await AsyncClient().get("/asynchronous/42")).content, b"1")

    def test_threads_have_locks_of_one_store(self) -> None:
        found: list[object] = []
        with locks.lock("x"):
            thread = threading.Thread(target=lambda: found.append(locks.lock("x").try_acquire()))
            thread.start()
            thread.join()
        self.assertEqual(found, [None])


class Tables(TestCase):
    def test_migrations_made_what_the_locks_need(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM holdfast_fences")
            if connection.settings_dict["TEST"]["MIGRATE"] is False:
                return
            if connection.vendor == "postgresql":
                cursor.execute("SELECT count(*) FROM holdfast.locks")
            if connection.vendor == "mysql":
                cursor.execute("SELECT count(*) - 1 FROM holdfast_claims")
            self.assertEqual(cursor.fetchone(), (0,))

    def test_there_is_nothing_left_to_migrate(self) -> None:
        call_command("makemigrations", "holdfast", check=True, dry_run=True, verbosity=0)


def url_of(**database: Any) -> str:
    with mock.patch.dict(settings.DATABASES, {"default": database}):
        return urls_of_stores.url(testing=False).plain


class Urls(TestCase):
    def test_what_contradicts_itself_is_refused_by_name(self) -> None:
        for wrong, told in (
            ({"URL": "redis://h", "OPTIONS": {"mode": "session"}}, "has a URL, and OPTIONS"),
            ({"URL": "redis://h", "DATABASE": "default"}, "has a URL, and DATABASE"),
            ({"URL": None}, "must be text, and is None"),
        ):
            with override_settings(HOLDFAST={"default": wrong}), self.assertRaisesMessage(Misuse, told):
                urls_of_stores.url()

    def test_of_postgresql(self) -> None:
        engine = "django.db.backends.postgresql"
        self.assertEqual(
            url_of(
                ENGINE=engine,
                NAME="app",
                USER="u@x",
                PASSWORD="p:/w",
                HOST="db",
                PORT=5433,
                OPTIONS={"sslmode": "require"},
            ),
            "postgresql://u%40x:p%3A%2Fw@db:5433/app?sslmode=require",
        )
        self.assertEqual(
            url_of(ENGINE=engine, NAME="app", HOST="/run/pg", PORT=""), "postgresql:///app?host=%2Frun%2Fpg"
        )
        self.assertEqual(url_of(ENGINE=engine, NAME="app", HOST="::1"), "postgresql://[::1]/app")

    def test_of_mysql(self) -> None:
        tls = {"ssl": {"ca": "/ca.pem"}}
        self.assertEqual(
            url_of(ENGINE="django.db.backends.mysql", NAME="app", USER="u", HOST="db", OPTIONS=tls),
            "mysql://u@db/app?ca=%2Fca.pem",
        )

    def test_of_sqlite_a_file_beside_it(self) -> None:
        engine = "django.db.backends.sqlite3"
        self.assertEqual(url_of(ENGINE=engine, NAME="/srv/a?b.db"), "sqlite:///srv/a%3Fb.db.locks")
        self.assertEqual(url_of(ENGINE=engine, NAME=":memory:"), "memory://beside")

    def test_of_others_none(self) -> None:
        with self.assertRaisesMessage(Misuse, "HOLDFAST ="):
            url_of(ENGINE="django.db.backends.oracle", NAME="app")

    @override_settings(HOLDFAST={"default": {"DATABASE": "default", "OPTIONS": {"mode": "session"}}})
    def test_with_options(self) -> None:
        self.assertEqual(url_of(ENGINE="django.db.backends.postgresql", NAME="app"), "postgresql:///app?mode=session")


def ids(found: list[Any]) -> list[str]:
    return [one.id for one in found if one.id.startswith("holdfast")]


class Checks(TestCase):
    def test_a_right_setting_is_right(self) -> None:
        self.assertEqual(ids(run_checks()), [])

    def test_what_is_wrong_is_told_without_its_password(self) -> None:
        for wrong in (
            {"default": {"URL": "localhost:6379"}},
            {"default": {"URL": "redis://u:hunter2@h:x/"}},
            {"default": {"DATABASE": "elsewhere"}},
            {"default": {"URI": "redis://"}},
            ["redis://"],
        ):
            with self.subTest(wrong=str(wrong)), override_settings(HOLDFAST=wrong):
                found = run_checks()
                self.assertEqual(ids(found), ["holdfast.E001"])
                self.assertNotIn("hunter2", str(found))

    @override_settings(HOLDFAST={"default": {"URL": "redis://127.0.0.1:1?timeout=0.1"}})
    def test_a_store_that_does_not_answer_is_told_when_databases_are_checked(self) -> None:
        self.assertEqual(ids(run_checks()), [])
        self.assertEqual(ids(run_checks(databases=["default"])), ["holdfast.W002"])

    @override_settings(HOLDFAST={"default": {"URL": "memory://"}}, DEBUG=False)
    def test_locks_in_memory_are_warned_of_in_production(self) -> None:
        self.assertEqual(ids(run_checks()), [])
        with mock.patch.object(urls_of_stores, "under_test", return_value=False):
            self.assertEqual(ids(run_checks()), ["holdfast.W004"])


class Once(TestCase):
    def test_a_command_is_wanted_and_options_go_before_the_name(self) -> None:
        for words in (("nightly",), ("nightly", "--"), ("nightly", "-w", "60", "--", "work")):
            with self.assertRaisesMessage(CommandError, "name the command"):
                call_command("once", *words)

    @override_settings(HOLDFAST={"default": {"URL": "nonsense"}})
    def test_a_wrong_setting_is_a_sentence(self) -> None:
        with self.assertRaisesMessage(CommandError, "ended with 125"):
            call_command("once", "nightly", "--", "work")


NASTY = "<script>alert(1)</script>"


class Admin(TestCase):
    def setUp(self) -> None:
        self.looks = User.objects.create_user("looks", is_staff=True)
        self.looks.user_permissions.add(Permission.objects.get(codename="view_lock"))
        self.evicts = User.objects.create_user("evicts", is_staff=True)
        self.evicts.user_permissions.set(Permission.objects.filter(codename__in=("view_lock", "evict_lock")))
        self.page, self.button = reverse("admin:holdfast_lock_changelist"), reverse("admin:holdfast_lock_evict")

    def browser(self, user: Any) -> Any:
        client = Client()
        client.force_login(user)
        return client

    def test_it_shows_who_holds_what_and_no_secret(self) -> None:
        with locks.lock(NASTY) as lease, locks.lock("other"):
            page = self.browser(self.looks).get(self.page)
            self.assertContains(page, "&lt;script&gt;alert(1)&lt;/script&gt;")
            self.assertNotContains(page, NASTY)
            self.assertContains(page, lease.token)
            self.assertContains(page, lease.owner)
            self.assertNotContains(page, lease._grant.claim.holder)
            self.assertNotContains(page, "Put out")
            found = self.browser(self.looks).get(self.page, {"q": "oth"})
            self.assertContains(found, "other")
            self.assertNotContains(found, "&lt;script")

    def test_strangers_see_nothing(self) -> None:
        self.assertEqual(Client().get(self.page).status_code, 302)
        staff = User.objects.create_user("staff", is_staff=True)
        self.assertEqual(self.browser(staff).get(self.page).status_code, 403)
        self.assertEqual(self.browser(staff).post(self.button, {"name": "x", "token": "1"}).status_code, 403)

    def test_who_may_look_may_not_put_out(self) -> None:
        with locks.lock("x") as lease:
            said = {"name": "x", "token": lease.token, "confirmed": "yes"}
            self.assertEqual(self.browser(self.looks).post(self.button, said).status_code, 403)
            self.assertEqual(self.browser(self.evicts).get(self.button, said).status_code, 403)
            forged = Client(enforce_csrf_checks=True)
            forged.force_login(self.evicts)
            self.assertEqual(forged.post(self.button, said).status_code, 403)
            lease.check()
            self.assertIsNone(locks.lock("x").try_acquire())

    def test_a_holder_is_put_out_after_a_second_look_and_it_is_written_down(self) -> None:
        lease = locks.lock(NASTY).acquire()
        browser = self.browser(self.evicts)
        said = {"name": NASTY, "token": lease.token}
        asked = browser.post(self.button, said)
        self.assertContains(asked, "If you put it out")
        self.assertNotContains(asked, NASTY)
        self.assertEqual(locks.inspect(NASTY).used, 1)
        done = browser.post(self.button, {**said, "confirmed": "yes"}, follow=True)
        self.assertContains(done, "was evicted")
        self.assertNotContains(done, NASTY)
        self.assertEqual(locks.inspect(NASTY).used, 0)
        entry = LogEntry.objects.get()
        self.assertEqual((entry.user, entry.object_id), (self.evicts, NASTY))
        self.assertFalse(lease.release())

    def test_only_the_grant_that_was_looked_at_is_put_out(self) -> None:
        old = locks.lock("x").acquire()
        old.release()
        with locks.lock("x") as lease:
            said = {"name": "x", "token": old.token, "confirmed": "yes"}
            self.assertContains(self.browser(self.evicts).post(self.button, said, follow=True), "any more")
            lease.check()
            self.assertEqual(locks.inspect("x").used, 1)
        for wrong in (
            {"name": "x", "token": "many"},
            {"name": "", "token": "1"},
            {"name": "x", "token": "1", "using": "?"},
        ):
            answer = self.browser(self.evicts).post(self.button, wrong, follow=True)
            self.assertEqual(answer.status_code, 200)

    @override_settings(HOLDFAST={"default": {"URL": "redis://127.0.0.1:1?timeout=0.1"}})
    def test_a_store_that_does_not_answer_is_a_sentence(self) -> None:
        self.assertContains(self.browser(self.looks).get(self.page), "errornote")

    def test_it_is_on_the_front_page(self) -> None:
        self.assertContains(self.browser(self.looks).get(reverse("admin:index")), self.page)


class Mistakes(TestCase):
    """Holes that the tests above must find."""

    setUp = Admin.setUp
    browser = Admin.browser

    def must_find(self, test: Any, mistake: Any) -> None:
        with mistake, self.assertRaises(AssertionError):
            test(self)

    def test_a_button_for_everybody_is_found(self) -> None:
        mistake = mock.patch("holdfast.contrib.django.admin._may_evict", return_value=True)
        self.must_find(Admin.test_who_may_look_may_not_put_out, mistake)

    def test_a_page_for_everybody_is_found(self) -> None:
        mistake = mock.patch("holdfast.contrib.django.admin.LockAdmin.has_view_permission", return_value=True)
        self.must_find(Admin.test_strangers_see_nothing, mistake)

    def test_an_eviction_of_whoever_is_there_is_found(self) -> None:
        evict = locks.force_release

        def whoever(_: object, name: str, *, token: int) -> int | None:
            return evict(name, token=locks.inspect(name).holders[0].token)

        mistake = mock.patch.object(type(locks["default"]), "force_release", whoever)
        self.must_find(Admin.test_only_the_grant_that_was_looked_at_is_put_out, mistake)

    def test_a_fence_that_is_none_is_found(self) -> None:
        mistake = mock.patch.object(fenced, "atomic", return_value=transaction.atomic())
        self.must_find(Locks.test_a_stale_token_changes_nothing, mistake)
