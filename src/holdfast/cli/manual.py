"""The --help pages."""

from __future__ import annotations

OVERVIEW = """\
holdfast: locks between processes and machines, with a fencing token for every
grant

  run NAME -- cmd …       run a command while holding the lock NAME
  ls [PREFIX]             the locks in use
  show NAME               who is inside, who waits
  why NAME                the same as a story, and what can be done
  watch [PREFIX]          follow what happens, line by line
  top                     live, like htop: sort, filter, open one, evict one
  release NAME --token T  evict one holder, the one you looked at
  dashboard [URL]         a page: who holds what, who waits for whom
  doctor [URL]            is the store fit to keep locks? What to do if not
  verify [URL]            attack it: are the promises kept under faults?
  simulate [STORE]        the same in virtual time: thousands of failing worlds
  lab                     a page: failures of locks, run step by step
  observe grafana|alerts  print a Grafana board, or alert rules for Prometheus
  advise                  do you need the lock at all? Ends in code to run
  advise store            which store, of those that you run
  advise ttl NAME         how long its ttl should be, from what was seen of it
  fence install|remove    print or apply the trigger that refuses stale tokens
  migrate --sql|--acl     print what a SQL store creates; the rights it needs
  docs [PAGE]             the pages of the documentation; one of them
  demo                    see updates get lost, and then not (10 s)
  completion SHELL        print what makes bash, zsh or fish complete all this
  version                 print the version

More, with examples: `holdfast COMMAND --help`, or `holdfast help COMMAND`.

Everywhere:
  --url URL       the store; else $HOLDFAST_URL, else an SQLite file of your own
                  in ~/.local/state/holdfast
  --url-file F    the same, read from a file: other users see your command line,
                  and the password in it
  --json          print JSON

Exit codes: 0 fine · 1 `release` found nobody, or was told not to · 125 holdfast
itself failed · of `run`, `doctor`, `verify` and `simulate`, see there"""

RUN = """\
holdfast run NAME [options] [--] cmd …
    run a command while holding the lock NAME

Waits for its turn, first come, first served; keeps the lock while the command
runs; gives it back when it ends. If the lock is lost, the command is ended
before anybody else can have it: it never outlives the lock.

  -n, --no-wait       do not wait: exit 75 if the lock is taken
  -w, --wait S        wait at most S seconds (or 5m, 2h, 1d)
  -E, --conflict-exit-code CODE
                      exit with CODE instead of 75
  -q, --quiet         say nothing when the lock was not to be had, nor, on a
                      terminal, whom we wait for
  --ttl S             how long the lock outlives a crash of this machine
                      (default 30 s; renewed at a third of it). The command gets
                      TERM when a quarter of it (at most 5 s) is left unrenewed,
                      then KILL
  --shared            readers and writers: one of many readers …
  --exclusive         … or the one writer. (Without either, NAME is a mutex,
                      which is another kind of lock.)
  --slots N           at most N at once
  --at-least S        the lock stays taken for S seconds, however short the
                      command: for a job that several machines start at the same
                      moment by clocks that differ a little. Use it with -n
  --label TEXT        shown to whoever asks who holds the lock
  --url URL           the store; else $HOLDFAST_URL, else an SQLite file in
                      ~/.local/state/holdfast
  --url-file FILE     the same, read from a file: for a URL with a password
  --pass-url          let the command have HOLDFAST_URL, if it takes locks
                      itself, and HOLDFAST_DASHBOARD_TOKEN; else these are
                      withheld from it

HOLDFAST_OBSERVE=dashboard tells a dashboard of it (see `holdfast help
dashboard`); if nobody listens, the command is run all the same.

The command runs without a shell, in its own process group, with this standard
input. Signals are passed on to it. What it leaves running in its process group
is ended when it ends. It finds in its environment:

  HOLDFAST_NAME, HOLDFAST_OWNER
  HOLDFAST_TOKEN          give it to whatever you write to, and have lower ones
                          refused
  HOLDFAST_EXPIRES_AT     Unix seconds; an estimate made at the start: the lock
                          is renewed meanwhile

Exit codes: the command's own · 128+n if signal n ended it (or ended the
waiting) · 75 not acquired · 76 lock lost, command ended · 125 holdfast itself
failed · 126 the command cannot be executed · 127 it was not found. (Nothing
stays locked.)

Examples:
  holdfast run backup -- tar -czf /backup/home.tgz /home
  holdfast run -n nightly --at-least 60 -- ./report.sh   # crontab of 5 machines
  holdfast run -w 5m deploy --label "$USER" -- make deploy
  holdfast run gpu --slots 2 -- python train.py
  holdfast run catalog --shared -- ./read.sh
  holdfast run catalog --exclusive -- ./write.sh"""

LS = """\
holdfast ls [PREFIX] [--older-than S] [--watch] [--json]
    the locks that are held or waited for

For each: how many hold it, units in use of its capacity, how many wait, how
long the oldest holder has had it, what is left of that holder's ttl, and who it
is.

  --older-than S    only those that somebody has held for S seconds or longer
                    (or 5m, 2h, 1d)
  --watch           again and again, until Ctrl-C. With --json, a line each time
  --interval S      … every S seconds (default 1)
  --for S           … for S seconds

Examples:
  holdfast ls invoice:
  holdfast ls --watch
  holdfast ls --older-than 1h"""

SHOW = """\
holdfast show NAME [--json]
    who is inside NAME, who waits, and who was last evicted

Holders with token, age and what is left of the ttl; the line in its order.

Example:
  holdfast show invoice:42"""

WHY = """\
holdfast why NAME [--json]   why NAME cannot be had, told as a story

Who holds it and for how long, who waits, who waits for whom across all locks of
the store, a deadlock if there is one, and what can be done about it, as a
command to copy.

Example:
  holdfast why invoice:42"""

RELEASE = """\
holdfast release NAME --token T [--yes] [--json]
    evict the holder of token T, and nobody else

Shows first who will be evicted, and on a terminal asks. If that grant is over
by now, nothing happens, and the exit code is 1. Prints a token that outranks
the old holder's: storage that checks tokens refuses the old one from the first
use of a newer one. The release is remembered (`holdfast show`), with who did
it.

  --token T    as `holdfast show NAME` prints it
  -y, --yes    do not ask

Example:
  holdfast release invoice:42 --token 1753900000000000 --yes"""

DEMO = """\
holdfast demo [--json]
    several processes share one bank balance: without a lock, with a lock, with
    a fenced lock

Takes about ten seconds, in a temporary folder. Exits with 0 if the third act
lost nothing while the first two did."""

FENCE = """\
holdfast fence install --table T [--column C] [options]
    refuse a lower token in T.C, even from code that forgot to compare
holdfast fence remove --table T [--column C] [options]
    remove that trigger; the column and its tokens stay
holdfast fence table [options]
    the table holdfast_fences of fenced transactions

Prints the SQL, for your migrations; with --apply it is done at once.

  --table T            the table, exactly as in the catalog; shop.orders names a
                       schema as well
  --column C           the column of its tokens (default: fence)
  --add-column         add the column first
  --dialect D          postgresql, mysql or sqlite
  --database URL       postgresql://…, mysql://… or sqlite:///path; says the
                       dialect as well
  --database-file F    the same URL, read from a file: for one with a password
  --apply              apply it to the database

An update that does not mention the column passes: the trigger cannot know who
sent it. And a check on writes alone still loses updates; seal the row before
reading it (fenced.transaction(…, row=…)), and let the trigger catch what forgot
to.

Examples:
  holdfast fence install --table orders --dialect postgresql > migration.sql
  holdfast fence install --table orders --column fence --apply \\
      --database postgresql://localhost/shop"""

ADVISE = """\
holdfast advise [answers] [--store S] [--code | --json]
    do you need the lock at all?
holdfast advise --graph mermaid|svg                       the whole tree, drawn
holdfast advise store --have S,S [--need N,N] [--machines one|many] [--data S]
    which store, with its URL and what to install
holdfast advise ttl NAME --from WHERE [--ttl S] [--json]
    how long its ttl should be, from what was seen of it

`advise store`: --have names what you run (sqlite, postgresql, mysql, etcd,
zookeeper, consul, redis, redlock; or nothing), --need what the lock must give:
failover (it stays held when a server dies), short-ttl (a second or two), fair
(first come, first served), windows. --data S: where the data is that the lock
protects. Exit code 1: none of what you run gives all of it.

`advise ttl` reads the metrics of a process that runs with
HOLDFAST_OBSERVE=prometheus (--from http://host:9464/metrics, or a file of
them), or a history (the dashboard's --history FILE, or JSON lines of `watch
--json`), and says with its arithmetic how long a ttl the renewals need, and how
long one that is not renewed. --ttl S: what the ttl is now. Exit code 1: NAME
was not seen.

Without either: asks a few questions, says what each answer means, and ends in a
recommendation with code that runs on your own store; or in "this design needs
changing", when nothing would be safe. On a terminal it asks; elsewhere, answer
by options:

  --idempotent yes|no               is doing it twice the same as once?
  --conflicts rare|frequent         how often do two want it at the same moment?
  --storage-check version|token|no  what can the storage check when it writes?
  --shard yes|no                    can the work be divided by an entity?
  --history yes|no                  does what happened matter, too?
  --one-process yes|no              does one process handle all of it?
  --goal efficiency|correctness     is it to save work, or to keep data right?
  --ttl-predictable yes|no          is the work short, and known to be?
  --store S                         sqlite, postgresql, mysql or redis, and for
                                    locks alone redlock, etcd, zookeeper or
                                    consul; else by the URL of the store, else
                                    sqlite
  --code                            print the code alone
  --json                            print JSON; with answers missing, the next
                                    question, and exit code 1

Exit codes: 0 fine · 1 --json: a question is open; --code: there is no code for
that end · 125 an answer makes no sense

Examples:
  holdfast advise
  holdfast advise --idempotent no --conflicts rare --storage-check version
  holdfast advise --idempotent yes --code | python
  holdfast advise --graph svg > tree.svg
  holdfast advise store --have redis,postgresql --need failover
  holdfast advise ttl invoice:42 --from http://billing:9464/metrics --ttl 30"""

MIGRATE = """\
holdfast migrate --sql [--json]
    print the tables and functions that the store of --url creates in its
    database
holdfast migrate --acl [--json]
    print the rights that the user of --url needs, and no more, for the store's
    own tool

For those whose application may not create: have it run by one who may. Running
it again does no harm. The database is not contacted.

Examples:
  holdfast migrate --sql --url postgresql://localhost/shop | psql shop
  holdfast migrate --acl --url redis://billing@cache/0?prefix=billing"""

WATCH = """\
holdfast watch [PREFIX] [--interval S] [--for S] [--json]
    follow the locks whose names begin with PREFIX

A line when somebody has come in (acquired), is inside no more (over: released,
lost or run out), has joined the line (waiting), has given up (left the line) or
was evicted (put out by force); with how long it has lasted. What is there at
the start is told first. The store is looked at every second: what came and went
between two looks is not seen. A store that does not answer is asked again, and
that is said. With --json, a line is one JSON object. Ends with Ctrl-C.

  --interval S    look every S seconds (default 1)
  --for S         end after S seconds

Example:
  holdfast watch invoice: --json | jq -c 'select(.event == "evicted")'"""

TOP = """\
holdfast top [FILTER] [--url URL]... [--interval S]
    live, in a terminal, like htop

Every name in use: who holds it, for how long, what is left of the ttl (a bar),
its token, how many wait and for how long, how often it was acquired in the last
minute (as far as was seen). What needs attention comes first: deadlocks,
holders that did not renew, starving waiters, locks that are held unusually
long. Needs: pip install 'holdfast[top]'.

  up, down, j, k      choose a lock; Enter opens it: its line, what happened to
                      it, who waits for whom
  s, r                sort by the next column; the other way round (or click)
  /                   filter by name, owner, store, or what is wrong; Esc ends
                      it
  e                   in an open lock: evict the holder, only the one you look
                      at, and only after its name was typed
  q                   quit

  --url URL           the store; may be repeated (or --also URL)
  --interval S        look every S seconds (default 1), and never for more than
                      a fifth of the time

Example:
  holdfast top --url redis://cache.internal --url postgresql://db.internal/shop"""

DASHBOARD = """\
holdfast dashboard [URL] [options]
    a page that shows, live, who holds what and who waits for whom

Every name in use with its holders, ttl, token and line; what needs attention
comes first: deadlocks, holders that did not renew, starving waiters, locks that
are held unusually long. One name with its last hour; the graph of who waits for
whom; the store's promises and what `doctor` finds; the last 10,000 events.
Needs: pip install 'holdfast[dashboard]'.

  --also URL        a further store; may be repeated
  --listen H:P      where (default 127.0.0.1:8377). An address that others reach
                    wants a token
  --token-file F    who looks has to log in with what is in this file (or
                    $HOLDFAST_DASHBOARD_TOKEN, or --token T, which others see
                    with ps)
  --allow-evict     holders may be evicted from the page, by whoever has the
                    token and types the name; without it, the page only looks
  --history FILE    keep the events in this SQLite file; else they are gone when
                    it ends
  --interval S      look every S seconds (default 1) while a page is open, else
                    every ten; and never for more than a fifth of the time

Example:
  holdfast dashboard redis://cache.internal --also postgresql://db.internal/shop"""

LAB = """\
holdfast lab [--listen H:P] [--record FILE]   failures of locks, on a page

The real engine and stores, in virtual time: a holder that is paused, a clock
that jumps, a store that forgets, a leader that is cut off. Play it, step
forward and back, pause a process or cut a link with a click, and see what the
storage accepts and refuses with and without a fence. A run is its address: it
can be shared. Needs: pip install 'holdfast[dashboard]'.

  --listen H:P      where, on this machine (default 127.0.0.1:8378)
  --record FILE     open a history that `holdfast verify --keep FILE` has kept

Example:
  holdfast lab"""

DOCTOR = """\
holdfast doctor [URL] [--json]   is this store fit to keep locks?

Connects, takes a lock of its own ten times, and looks at what the store lets it
see: version, rights, persistence, eviction, replicas, poolers, clocks, ttl
limits, the health of a quorum, TLS and logins, leftovers of dead processes.
Each line is ok, a warning or a problem, with what to do. What it may not look
at says "could not look", which is a warning: not known to be well. Nothing is
changed. At the end: what the store gives, and what it does not, whatever its
settings.

Exit codes: 0 all ok · 1 a warning · 2 a problem (a store that does not answer
is one) · 125 the URL makes no sense

Examples:
  holdfast doctor redis://cache.internal
  holdfast doctor --url-file /run/secrets/locks --json |
    jq -r '.findings[] | select(.level != "ok") | .text'"""

VERIFY = """\
holdfast verify [URL] [options]           attack a store that you have
holdfast verify --own KIND [options]
    attack servers that it starts and ends itself
holdfast verify --check FILE [options]
    judge a history again that --keep has kept

Worker processes take locks of every kind and change a register that checks
tokens (an SQLite file in a temporary folder), while a nemesis strikes. All of
it is written down, then judged: no stale write accepted, no update lost, nobody
refused without cause, tokens in order, the register linearizable, no lease that
says held when it is over, every waiter served in time. Your own locks are left
alone: its names have a prefix of its own, and it goes out of all of them at the
end.

  --seconds S     how long faults are struck (default 10)
  --workers N     how many processes (default 4)
  --faults A,B    only these, or none. Else all that can be struck:
                  pause, kill, clock: workers of its own
                  cut, delay, drop: connections and answers between its workers
                  and your servers, by a proxy
                  restart, pause-server, leader, failover, partition, disk-full,
                  clock-server: only servers of its own (--own)
  --own KIND      redis, valkey, redis-sentinel, redlock, etcd, zookeeper,
                  consul, postgresql, mariadb; three members where there are
                  three. disk-full and partition take root
  --register URL  what the workers change is in your PostgreSQL, in a schema of
                  the run's own that is dropped at the end; else in a file
  --library NAME  somebody else's locks under the same: redis-py, kazoo …, on
                  the server that they need
  --ttl S         of the locks (default 1; more where the store wants more)
  --seed N        the same plan again (the machine's own timing is not in it)
  --no-fence      the register checks no tokens: to see what is lost then
  --keep FILE     keep the history
  --report FILE   a page (HTML, in one file) with the verdict, a timeline of
                  holds and faults, waits, refusals

Exit codes: 0 all kept · 1 a promise was broken · 2 too little happened to
conclude anything · 125 it could not be run

Examples:
  holdfast verify redis://cache.internal --faults pause --report verdict.html
  holdfast verify --own etcd --seconds 30
  holdfast verify sqlite:////tmp/locks.db --no-fence --faults pause"""

SIMULATE = """\
holdfast simulate [STORE] [options]   run seed after seed, until one breaks a
                                      promise
holdfast simulate STORE --seed N      tell the story of one seed

Several processes take locks of every kind and change a register that checks
tokens, in virtual time, in a world that fails: the engine, the recipes, the
store and its bytes are those that you run, servers and network are simulated. A
seed is a world: the same one gives the same history. Each draws which faults
there are, and how many. What happened is judged as `holdfast verify` does it.

  STORE           memory, sqlite, redis, redis-cluster (three masters), redlock
                  (three nodes), redlock5 (five), etcd, consul (one server or
                  three); without it, all of them
  --seeds N       how many (default 200)
  --first N       the first of them (default 0)
  --seconds S     as many as the time allows, instead
  --faults A,B    only these, or none. For redis: pause, crash, cancel, evict,
                  partition, wall_jump, fork, signal (whose handler raises),
                  server_pause, forget (it restarts empty), restart, fail_over
                  (to a replica that lags), lose_scripts, evict_key,
                  server_clock, cut, half_open, close (by its user), lose and
                  repeat (messages to the register), slow, split, cut_off (bytes
                  on their way). For redis-cluster also move_slot. For etcd and
                  consul also leader, cut_member, go_away, end_logins (etcd),
                  index_reset (consul); and none of those that forget
  --count FILE    add what was run to the figures in FILE, and go on there the
                  next time
  --html FILE     with --seed: the story as a page, with a lane for every
                  process and server, and for the storage. Without it: the
                  shortest story of a seed that fails

A seed that fails is made simpler, and told: who did what, when. It needs the
Lua of the package lupa for Redis: pip install 'holdfast[redis,testing]'

Exit codes: 0 all kept · 1 a promise was broken · 125 it could not be run

Examples:
  holdfast simulate redis --seeds 1000
  holdfast simulate redis --seed 7 --html story.html
  holdfast simulate redis --faults pause,server_clock,forget"""

OBSERVE = """\
holdfast observe grafana   print a board for Grafana (JSON, to be imported)
holdfast observe alerts
    print alert rules for Prometheus (YAML, for its rule_files)

Both read the metrics of processes that were connected with
observe=["prometheus"], or run with HOLDFAST_OBSERVE=prometheus. What to do
about an alert: docs/operating.md.

Examples:
  holdfast observe grafana > board.json
  holdfast observe alerts > /etc/prometheus/rules/holdfast.yml"""

COMPLETION = """\
holdfast completion bash|zsh|fish
    print what makes a shell complete commands and options

Examples:
  holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completion zsh > ~/.zfunc/_holdfast         with ~/.zfunc in fpath
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish"""

DOCS = """\
holdfast docs [PAGE] [--json]
    the pages of the documentation, which come with the package; or one of them,
    as Markdown

Examples:
  holdfast docs
  holdfast docs redis | less
  holdfast docs start/fastapi"""

PAGES = {
    "completion": COMPLETION,
    "help": OVERVIEW,
    "version": OVERVIEW,
    "": OVERVIEW,
    "advise": ADVISE,
    "dashboard": DASHBOARD,
    "top": TOP,
    "lab": LAB,
    "doctor": DOCTOR,
    "migrate": MIGRATE,
    "observe": OBSERVE,
    "verify": VERIFY,
    "simulate": SIMULATE,
    "watch": WATCH,
    "fence": FENCE,
    "run": RUN,
    "ls": LS,
    "show": SHOW,
    "why": WHY,
    "release": RELEASE,
    "demo": DEMO,
    "docs": DOCS,
}


def page(command: str) -> str:
    return PAGES[command]
