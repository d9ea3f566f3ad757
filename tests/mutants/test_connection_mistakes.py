"""Connections that are lent out go wrong in these ways; each is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_found

HANDS, CONNECTIONS = "tests/stores/kit/test_hands.py::", "tests/stores/postgresql/test_connections.py::"
RELEASE = "test_a_release_struck_at_any_request_lets_the_next_in_at_once[threads-reset after sending]"
CLAIMED = "test_a_claim_that_arrives_when_its_repetition_has_come_and_gone_does_not_stay[free-threads]"
POOL, WIRE = "stores/kit/hands.py", "stores/postgresql/wire.py"

DOUBTS, DOUBTED = "stores/kit/doubts.py", "tests/stores/kit/test_doubts.py::"
SILENT = "test_one_connection_that_falls_silent_keeps_nobody_out_and_nobody_in"
FORGOTTEN = "tests/conformance/test_redlock.py::TestRedlock::" + (
    "test_when_all_connections_fall_silent_at_once_new_ones_take_their_place"
)
PAUSED = "tests/stores/redis/test_silence.py::test_what_newcomers_are_told_while_writes_are_paused_says_nothing"
ADDRESSES = "tests/stores/test_several_addresses.py::"
ALARM, AGAIN, ALARMS = "stores/kit/alarm.py", "stores/kit/again.py", "tests/stores/kit/test_alarm.py::"

MUTANTS = [
    Mutant(
        "gevent came late: whoever used the connection before goes on with what is no good any more",
        "engine.py",
        (
            (
                "        if threading.Lock is not self._kind_of_mutex:"
                "  # first: who is known from before is not to go on with what was\n"
                "            self._begin_anew()\n        who = self.driver.whoami()\n"
                "        known = self._owners.get(who)  # the same threads and tasks usually ask again\n"
                "        if known is not None:\n            return known\n",
                "        who = self.driver.whoami()\n        known = self._owners.get(who)\n"
                "        if known is not None:\n            return known\n"
                "        if threading.Lock is not self._kind_of_mutex:\n            self._begin_anew()\n",
            ),
        ),
        "tests/test_connecting.py::test_gevent_that_comes_when_nothing_is_held_any_more_is_in_time_for_who_was_there_before_too",
    ),
    Mutant(
        "gevent came late: what was connected before is not hung up",
        "drivers/sockets.py",
        (("    own.shutdown(plain, socket.SHUT_RDWR)", "    socket.socket.shutdown(plain, socket.SHUT_RDWR)"),),
        "tests/drivers/test_streams.py::test_what_was_connected_before_gevent_came_is_hung_up_all_the_same",
    ),
    Mutant(
        "ZooKeeper: what another asking has found gone is told of as a token 0",
        "stores/zookeeper/entering.py",
        (
            ("        if record.path != path:\n            return None", "        if False:\n            return None"),
            ("        return Grant(claim, token, record", "        return Grant(claim, record.token, record"),
        ),
        "tests/stores/zookeeper/test_left_twice.py::test_who_is_overtaken_by_the_other_who_found_it_gone_says_so_or_what_was_true"
        "[wanted-answered before]",
    ),
    Mutant(
        "Redis in asyncio: after a question that was interrupted, everybody is given the answer of another",
        "stores/redis/pipe.py",
        (
            (
                "                self._watch()\n        except BaseException:\n            self._interrupted()\n",
                "                self._watch()\n        except BaseException:\n",
            ),
        ),
        "tests/stores/redis/test_interrupted_pipe.py::test_no_answer_is_given_to_another",
    ),
    Mutant(
        "Redis in asyncio: whose answer was lost in an interruption is waited for",
        "stores/redis/pipe.py",
        (
            (
                "            self._updated(count)\n        except BaseException:\n            self._interrupted()\n",
                "            self._updated(count)\n        except BaseException:\n",
            ),
        ),
        "tests/stores/redis/test_interrupted_pipe.py::test_no_answer_is_given_to_another",
    ),
    Mutant(
        "PostgreSQL: an ear that no thread reads is kept, and with it all that anybody is told",
        "stores/postgresql/ear.py",
        (("if self._due() <= self._driver.now():", "if False:"),),
        "tests/stores/postgresql/test_trouble.py::"
        "test_an_ear_that_nobody_reads_keeps_nothing_in_the_queue_of_notifications[threads]",
    ),
    Mutant(
        "PostgreSQL: a question that was cancelled is told as the end of a session lock",
        "stores/postgresql/watched.py",
        (
            (
                "except ServerError as error:\n                if owed",
                "except EOFError as error:\n                if owed",
            ),
        ),
        "tests/stores/postgresql/test_trouble.py::test_a_refusal_to_say_whether_a_session_is_there_is_no_loss[threads]",
    ),
    Mutant(
        "PostgreSQL: an ear is closed while somebody waits there",
        "stores/postgresql/ear.py",
        (("NEVER if self._bells or self._connection is None", "NEVER if self._connection is None"),),
        "tests/stores/postgresql/test_trouble.py::"
        "test_an_ear_that_nobody_reads_keeps_nothing_in_the_queue_of_notifications[threads]",
    ),
    Mutant(
        "who comes while the deadlines are looked at is slept through",
        ALARM,
        (
            ("                self._wake_at = NEVER  # first", "                self._name  # first"),
            ("self._wake_at = min(self._wake_at, due,", "self._wake_at = min(due,"),
        ),
        ALARMS + "test_what_comes_while_it_looks_is_not_slept_through",
    ),
    Mutant(
        "an earlier deadline wakes nobody",
        ALARM,
        (("< self._wake_at <= deadline:", "< self._wake_at < NEVER:"),),
        ALARMS + "test_each_deadline_is_seen_to_when_it_comes_and_nobody_looks_in_between",
    ),
    Mutant(
        "who sleeps in an event loop that was closed is waited for",
        ALARM,
        (
            ("there = bell is not None and not bell.asleep", "there = bell is not None"),
            ("if self._bell is None or self._bell.asleep or not self._bell.ring():", "if self._bell is None:"),
        ),
        ALARMS + "test_one_whose_event_loop_was_closed_is_replaced",
    ),
    Mutant(
        "it is tried again past its time",
        AGAIN,
        (("while (left := deadline - driver.now()) > 0:", "while (left := deadline - driver.now()) > -1:"),),
        ALARMS + "test_it_does_not_go_on_past_its_deadline",
    ),
    Mutant(
        "it is tried again where nobody can be reached",
        AGAIN,
        (("            except Unreachable:\n                if", "            except EOFError:\n                if"),),
        ALARMS + "test_nobody_is_asked_again_where_nobody_can_be_reached",
    ),
    Mutant(
        "a newcomer takes what was put back",
        POOL,
        (("        if self._line:\n            return False\n", ""),),
        HANDS + "test_what_lies_there_is_for_who_waits",
    ),
    Mutant(
        "who is cancelled keeps what it was given",
        POOL,
        (
            (
                "        if hand.bell is not None:\n            with",
                "        if hand.bell is not None:\n            hand.connection = NOTHING\n            with",
            ),
        ),
        HANDS + "test_who_is_cancelled_just_then_passes_it_on",
    ),
    Mutant(
        "who gave up waiting is served all the same",
        POOL,
        (("                self._line.remove(hand)\n", "                pass\n"),),
        HANDS + "test_whoever_gives_up_waiting_leaves_none_behind",
    ),
    Mutant(
        "what is taken by a call, after which a signal may come",
        POOL,
        (
            (
                "            return False\n        try:\n            hand.connection, self._lying[:1] = self._lying[0], ()\n",
                "            return False\n        try:\n            hand.connection = self._lying.pop(0)\n",
            ),
        ),
        HANDS + "test_interrupted_after_any_call_no_connection_is_used_up",
    ),
    Mutant(
        "one connection in two hands, of which one was in a loop that is gone",
        POOL,
        (
            (
                "                    self._lay_down(hand)\n                self._line",
                "                    self._lying[:0] = [hand.connection]\n                self._line",
            ),
        ),
        HANDS + "test_who_comes_for_what_was_given_back_in_its_name_gets_nothing",
    ),
    Mutant(
        "a leave that is lost when closing is interrupted",
        POOL,
        (
            (
                "                hand.drop()\n            finally:\n                self.put_back(hand)\n",
                "                hand.drop()\n                self.put_back(hand)\n            finally:\n                pass\n",
            ),
        ),
        HANDS + "test_interrupted_while_they_are_taken_from_there_none_is_lost",
    ),
    Mutant(
        "a connection that is kept though its answer is to come",
        WIRE,
        (
            (
                "            self.released.doubtful = True\n            hand.drop()\n            raise\n",
                "            raise\n",
            ),
        ),
        CONNECTIONS + "test_a_connection_whose_answer_did_not_come_in_time_is_closed",
    ),
    Mutant(
        "the next question, before the answer that nobody waits for has come",
        "stores/postgresql/lane.py",
        (
            (
                "        if not self._flight:\n            self._next()\n",
                "        if all(one.answer.done() for one in self._flight):\n            self._next()\n",
            ),
        ),
        CONNECTIONS + "test_who_is_cancelled_leaves_its_answer_to_nobody",
    ),
    Mutant(
        "a forked child that keeps what is in use",
        WIRE,
        (
            (
                "        for connection in list(self._everything):\n",
                "        for connection in filter(None, (*self._pool.idle(), *self._apart, self._shared)):\n",
            ),
        ),
        CONNECTIONS + "test_a_forked_child_lets_go_of_every_connection_also_of_those_that_are_in_use",
    ),
    Mutant(
        "a name is waited for as long as the resolver takes",
        "stores/mysql/connection.py",
        (
            (
                "await look_up((target.host, target.port), ThreadBell(), deadline)",
                "socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)",
            ),
        ),
        "tests/stores/test_looking_up.py::test_in_threads[mysql://root@nobody.example/holdfast]",
    ),
    Mutant(
        "a name is looked up by the loop's executor, which asyncio.run() waits for",
        "stores/mysql/connection_aio.py",
        (
            (
                "    found = await look_up((target.host, target.port), LoopBell(), deadline)\n",
                "    found = [((target.host, target.port),)]\n",
            ),
        ),
        "tests/stores/test_looking_up.py::test_in_asyncio[mysql://root@nobody.example/holdfast]",
    ),
    Mutant(
        "a silent address of a Redis takes all the time that there is",
        "stores/redis/connection.py",
        ((" and self._places and _clock() >= self._next_at:", " and False:"),),
        ADDRESSES + "test_in_threads[redis]",
    ),
    Mutant(
        "the same, of the nodes of a Redlock",
        "stores/redlock/polled.py",
        (("            within = min([within, *(node.hurry() for node in self)])\n", "            pass\n"),),
        ADDRESSES + "test_in_threads[redlock]",
    ),
    Mutant(
        "the same, of a MySQL in asyncio",
        "stores/mysql/connection_aio.py",
        (("max((deadline - boot_time()) / left, 0.001)", "max(deadline - boot_time(), 0.001)"),),
        ADDRESSES + "test_in_asyncio[mariadb]",
    ),
    Mutant(
        "an address of a MySQL at which nobody listens, in asyncio, is the last that is tried",
        "stores/mysql/connection_aio.py",
        (("if left == 1 or error.args[0] != _NOBODY_THERE:", "if True:"),),
        ADDRESSES + "test_in_asyncio[mariadb]",
    ),
    Mutant(
        "whose certificate it is, is asked of the address that was dialled",
        "stores/mysql/connection_aio.py",
        (("        self._host = self.host_name\n", ""),),
        "tests/stores/mysql/test_logins.py::test_a_certificate_is_for_the_name_that_was_asked_for[asyncio]",
    ),
    Mutant(
        "the nodes of a cluster are gone through while others find more of them",
        "stores/redis/cluster.py",
        (
            (
                "        for wire in (self._home, *self._wires.copy().values()):\n            wire.reset()\n",
                "        for wire in self._wires.values():\n            wire.reset()\n",
            ),
        ),
        "tests/stores/redis/test_cluster_wire.py::test_a_node_that_another_thread_finds_meanwhile_breaks_nothing",
    ),
    Mutant(
        "a server that hangs up at once is a mistake of the user",
        "stores/mysql/connections.py",
        (('if "socket instance" in str(error):', "if False:"),),
        "tests/stores/mysql/test_dialling.py",
    ),
    Mutant(
        "who would not wait waits for a silent server to take it back",
        "cli/run.py",
        (("FIND_OUT if isinstance(error, Unavailable) else CLOSING", "CLOSING"),),
        "tests/cli/test_exit_codes.py::test_nor_does_one_that_falls_silent_when_it_has_let_us_in",
    ),
    Mutant(
        "where a slot was found is not remembered",
        "stores/redis/cluster.py",
        (("                        self._slots[slots[index]] = address\n", "                        pass\n"),),
        "tests/stores/redis/test_cluster_wire.py",
    ),
    Mutant(
        "a release that arrived twice is a loss, on MySQL",
        "stores/mysql/store.py",
        (("return bool(there or twice)", "return bool(there)"),),
        "tests/conformance/test_mysql.py::TestMySql::" + RELEASE,
    ),
    Mutant(
        "a release that arrived twice is a loss, on PostgreSQL",
        "stores/postgresql/store.py",
        ((" or asked.twice", ""),),
        "tests/conformance/test_postgresql.py::TestPostgreSQL::" + RELEASE,
    ),
    Mutant(
        "a release that fails after an earlier one was not answered is a loss, on Consul",
        "stores/consul/claiming.py",
        (("mine.leaving = before", "mine.leaving = False"),),
        "tests/stores/consul/test_mistakes.py::"
        "test_a_release_that_arrives_in_the_middle_of_its_own_repetition_is_no_loss",
    ),
    Mutant(
        "a claim that Redis was asked for twice is given back once",
        "stores/redis/store.py",
        (("        self._repeats(holder)\n", ""),),
        "tests/conformance/test_redis.py::TestRedis::" + CLAIMED,
    ),
    Mutant(
        "that a claim was repeated is told, and not heard",
        "engine.py",
        (("        self._doubts.add(holder)  #", "        pass  #"),),
        "tests/conformance/test_redis.py::TestRedis::" + CLAIMED.replace("threads", "asyncio"),
    ),
    Mutant(
        "that a downgrade was repeated is told, and not heard",
        "engine.py",
        (("            for lease in mine:\n                lease._strays = True\n", ""),),
        "tests/conformance/test_redis.py::TestRedis::"
        "test_a_downgrade_that_arrives_when_its_lease_was_given_back_does_not_stay[threads]",
    ),
    Mutant(
        "a claim that PostgreSQL was asked for twice is given back once",
        "stores/postgresql/store.py",
        (("        if asked.twice:\n            self._repeats(packed[1].decode())\n", ""),),
        "tests/conformance/test_postgresql.py::TestPostgreSQL::" + CLAIMED.replace("threads", "asyncio"),
    ),
    Mutant(
        "a claim that a node hung up on is given back once",
        "stores/redlock/fan.py",
        (("            self.question.broken()\n", "            pass\n"),),
        "tests/stores/redlock/test_leaving.py::"
        "test_a_claim_that_arrives_at_a_node_when_all_is_over_does_not_stay[asyncio]",
    ),
    Mutant(
        "on PostgreSQL all who connect say at once what was released",
        "stores/postgresql/released.py",
        (("or not latest or self._saying:", "or not latest:"),),
        CONNECTIONS + "test_what_was_released_is_said_again_by_one_connection_at_a_time",
    ),
    Mutant(
        "on PostgreSQL nobody says what was released while a failure is remembered",
        WIRE,
        (("        conversation.close()  # now,", "        pass  # now,"),),
        CONNECTIONS + "test_what_was_released_is_said_again_by_one_connection_at_a_time",
    ),
    Mutant(
        "a release that arrived twice is a loss, on Redis",
        "stores/redis/store.py",
        (("return bool(reply or twice)", "return bool(reply)"),),
        "tests/conformance/test_redis.py::TestRedis::" + RELEASE,
    ),
    Mutant(
        "a release that arrived twice while scripts were loaded is a loss, on Redis",
        "stores/redis/store.py",
        (("reply, name, started + within, once=True)", "reply, name, started + within)"),),
        "tests/stores/redis/test_faults_between.py::test_a_release_that_arrived_twice_while_scripts_were_loaded_is_no_loss",
    ),
    Mutant(
        "while replicas are waited for, all tasks wait, on Redis",
        "stores/redis/store.py",
        (("reply, acknowledged = await self._wire.ask_slowly(", "reply, acknowledged = await self._wire.ask_all("),),
        "tests/stores/redis/test_groups.py::test_while_replicas_are_waited_for_nobody_else_is_kept_waiting",
    ),
    Mutant(
        "a release is repeated unseen at a node that is just getting the slot",
        "stores/redis/cluster.py",
        (("deadline - self._now(), once=once))[-1]", "deadline - self._now()))[-1]"),),
        "tests/stores/redis/test_cluster_wire.py",
    ),
    Mutant(
        "a release that arrived twice is a loss, on Redlock",
        "stores/redlock/fan.py",
        (("if answer == 0 and question.leaving and", "if False and"),),
        "tests/conformance/test_redlock.py::TestRedlock::" + RELEASE,
    ),
    Mutant(
        "a release that arrived twice is a loss, on Redlock in asyncio",
        "stores/redlock/fan.py",
        (("if answer == 0 and question.leaving and", "if False and"),),
        "tests/conformance/test_redlock.py::TestRedlock::" + RELEASE.replace("threads", "asyncio"),
    ),
    Mutant(
        "a release that arrived twice is a loss, on etcd",
        "stores/etcd/store.py",
        (("return any(done.answers) or left", "return any(done.answers)"),),
        "tests/conformance/test_etcd.py::TestEtcd::" + RELEASE,
    ),
    Mutant(
        "a release that arrived twice is a loss, on ZooKeeper",
        "stores/zookeeper/sessions.py",
        (("return there or unanswered", "return there"),),
        "tests/conformance/test_zookeeper.py::TestZooKeeper::" + RELEASE,
    ),
    Mutant(
        "two who leave a row together",
        WIRE,
        (("self._rows.pop(name, None)", "del self._rows[name]"),),
        CONNECTIONS + "test_two_who_waited_for_a_row_may_leave_together",
    ),
    Mutant(
        "whoever was lent a connection that fell silent waits there for all of the time",
        DOUBTS,
        (
            (
                "            self._turns.dismiss()\n            return found\n",
                "            found.close()\n            return None\n",
            ),
        ),
        "tests/conformance/test_redis.py::TestRedis::" + SILENT + "[threads]",
    ),
    Mutant(
        "nobody asks about the connection that all tasks share",
        "stores/redis/pipe.py",
        (("            doubted(self)\n", "            pass\n"),),
        "tests/conformance/test_redis.py::TestRedis::" + SILENT + "[asyncio]",
    ),
    Mutant(
        "a renewal is waited for on a connection that fell silent",
        "stores/redis/wire.py",
        (("            one.doubt(deadline)\n", "            pass\n"),),
        "tests/conformance/test_redis.py::TestRedis::test_a_renewal_on_a_connection_that_falls_silent_is_known_in_time[threads]",
    ),
    Mutant(
        "everybody asks a silent server whether it is there, again and again",
        DOUBTS,
        (("if self.rest or self._now()", "if self._now()"),),
        DOUBTED + "test_of_many_at_once_one_asks_and_the_others_believe_it",
    ),
    Mutant(
        "what was on its way is not waited for",
        DOUBTS,
        (("            if spoke:\n", "            if False:\n"),),
        DOUBTED + "test_what_was_on_its_way_is_heard_and_the_newcomer_is_sent_home",
    ),
    Mutant(
        "PostgreSQL: who waits for a row is taken for stuck",
        WIRE,
        (("        if not at_work:\n", "        if True:\n"),),
        "tests/stores/postgresql/test_silence.py::test_who_waits_for_a_row_is_not_taken_for_stuck",
    ),
    Mutant(
        "MySQL: who waits for a row is taken for stuck",
        "stores/mysql/conversation.py",
        (("        if all(command", "        if True or all(command"),),
        "tests/stores/mysql/test_silence.py::test_who_waits_for_a_row_is_not_taken_for_stuck",
    ),
    Mutant(
        "Redis: whatever a newcomer is told is taken for a sign that the server is well",
        "stores/redis/wire.py",
        (("if not is_missing_script(reply):", "if False:"),),
        PAUSED + "[in_a_thread-no room]",
    ),
    Mutant(
        "Redis in asyncio: who is not let in takes the place of who was",
        "stores/redis/shared_wire.py",
        (("is_well = is_missing_script(", "is_well = bool("),),
        PAUSED + "[in_a_loop-another password]",
    ),
    Mutant(
        "of etcd's and Consul's connections, one that falls silent is waited for",
        "stores/kit/pool.py",
        (("while self._answers is not None and (left", "while self._answers is None and (left"),),
        DOUBTED + "test_where_there_is_one_server_it_is_asked_on_another_connection[etcd]",
    ),
    Mutant(
        "PostgreSQL in asyncio: who was not told an answer since that was interrupted waits for ever",
        "stores/postgresql/lane.py",
        (
            ("            flight = self._flight\n", "            flight, self._flight = self._flight, []\n"),
            ('            self.fail(self.broken(Exception("an answer was interrupted")))\n', ""),
        ),
        "tests/stores/postgresql/test_interrupted_lane.py::"
        "test_nobody_waits_for_an_answer_that_was_interrupted[_told-asyncio]",
    ),
    Mutant(
        "of many connections that fall silent at once, one is replaced after the other",
        DOUBTS,
        (("            self._turns.dismiss()\n", ""),),
        DOUBTED + "test_when_many_are_silent_at_once_all_are_replaced_at_once",
    ),
    Mutant(
        "a thread waits for Redlock nodes on connections that a firewall has forgotten",
        "stores/redlock/polled.py",
        (("        if silent:\n", "        if False:\n"),),
        FORGOTTEN + "[threads]",
    ),
    Mutant(
        "a task waits for Redlock nodes on connections that a firewall has forgotten",
        "stores/redis/shared_wire.py",
        (("        pipe.doubted = WeakMethod(self._doubt)\n        return pipe\n", "        return pipe\n"),),
        FORGOTTEN + "[asyncio]",
    ),
    Mutant(
        "a Redlock node whose connection is lost is as good as down, since the others are enough",
        "stores/redlock/polled.py",
        (("(bool(owed) and now > owed[0].asked + self._patience)", "False"),),
        "tests/stores/redlock/test_leaving.py::"
        "test_a_node_whose_connection_is_lost_is_reached_again_though_the_others_are_enough[threads]",
    ),
    Mutant(
        "a descriptor is nobody's for a moment",
        "drivers/descriptors.py",
        (
            (
                "    return next(map(socket.SocketType, (-1,), (-1,), (-1,), map(socket.dup, (plain,))))",
                "    return socket.socket(fileno=socket.dup(plain))",
            ),
        ),
        "tests/drivers/test_descriptors.py::test_no_descriptor_is_lost_to_a_signal[another]",
    ),
    Mutant(
        "a signal while a thread connects to Redis leaves a descriptor open for ever",
        "stores/redis/connection.py",
        (("another(self._socket.fileno())", "self._socket.dup()"),),
        "tests/drivers/test_descriptors.py::test_nor_when_a_thread_connects_to_redis",
    ),
    Mutant(
        "libpq's socket is closed by us, and then by libpq",
        "stores/postgresql/salted.py",
        (("another(number)", "socket.socket(fileno=number)"),),
        "tests/drivers/test_descriptors.py::test_what_is_borrowed_of_libpq_stays_open",
    ),
]


@pytest.mark.server
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
