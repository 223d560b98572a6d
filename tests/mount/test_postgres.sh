#!/bin/bash
# PostgreSQL on a mount whose server is killed under load, ROUNDS= times (default:
# TEST_SCALE), PG_SECONDS= each, on PG_SCALE= (see pgbench -s).  After each kill
# PostgreSQL recovers by itself, and then
#   - every transaction is there whose end a client had heard of: numbers that it wrote
#     down outside of the mount, and the transactions in pgbench's own log;
#   - no transaction is there by half: pgbench's sums agree;
#   - indexes and tables agree (pg_amcheck), every page has its checksum (pg_checksums).
. "$(dirname "$0")/lib.sh"

bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
[ -x "$bin/initdb" ] || skip 'PostgreSQL is not installed'
as=() options=()
if [ "$(id -u)" -eq 0 ]; then # PostgreSQL refuses to run as root
	id postgres >/dev/null 2>&1 || skip 'no user "postgres" here'
	as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
	options=(-o allow_other)
fi
rounds=${ROUNDS:-${TEST_SCALE:-1}}
seconds=${PG_SECONDS:-2}
export PGHOST=$work/socket PGDATABASE=postgres PGUSER=postgres PGCONNECT_TIMEOUT=60
data=$mnt/cluster/data
postmaster='' clients=()

export LC_ALL=C
sql() { timeout 100 "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

start_postgres() {
	"${as[@]}" "$bin/postgres" -D "$data" -k "$PGHOST" -c listen_addresses= \
		-c shared_buffers=24MB -c max_wal_size=64MB -c checkpoint_timeout=30s \
		-c synchronous_commit=on >>"$work/postgres.log" 2>&1 &
	postmaster=$!
	eventually "$bin/pg_isready" -q
}

# Its processes have sessions of their own, so each has to be named.
kill_postgres() {
	local pid pids
	pids=$(pgrep -P "$postmaster" || true)
	# shellcheck disable=SC2086
	kill -9 "$postmaster" $pids 2>/dev/null || true
	wait "$postmaster" 2>/dev/null || true
	for pid in $pids; do timeout 20 tail --pid="$pid" -s 0.1 -f /dev/null; done
	postmaster=
}

stop_postgres() {
	kill -INT "$postmaster"
	timeout 100 tail --pid="$postmaster" -s 0.1 -f /dev/null || fail 'PostgreSQL does not stop'
	wait "$postmaster" || fail "PostgreSQL ended badly: $(tail -n 20 "$work/postgres.log")"
	postmaster=
}

teardown_postgres() {
	local code=$?
	[ -z "$postmaster" ] || kill_postgres
	(exit $code)
	teardown
}
trap teardown_postgres EXIT

# Client, round.  psql prints a row when it has heard of the end of its transaction.
number_writer() {
	local n=0
	while [ $n -lt 200000 ]; do
		echo "insert into numbers values ($1, $2, $n, repeat('x', $n % 3000)) returning $1, $2, n;"
		n=$((n + 1))
	done | "$bin/psql" -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 >>"$work/heard.$1" 2>/dev/null
}

start_clients() {
	local round=$1 i
	clients=()
	for i in 1 2; do
		number_writer "$i" "$round" &
		clients+=($!)
	done
	(cd "$work" && exec "$bin/pgbench" -n -c 4 -j 2 -T 600 -l --log-prefix="bench.$round" \
		>"$work/pgbench.out" 2>&1) &
	clients+=($!)
}

heard() { [ "$(cat "$work"/heard.* | wc -l)" -ge "$1" ]; }
benched() { [ "$(cat "$work/bench.$1".* 2>/dev/null | wc -l)" -ge 5 ]; }

end_clients() {
	local pid
	for pid in "${clients[@]}"; do
		timeout 60 tail --pid="$pid" -s 0.1 -f /dev/null || fail 'a client hangs'
		wait "$pid" || true
	done
	clients=()
}

check_database() {
	sql -F ' ' -c 'select writer, round, n from numbers' | sort >"$work/there"
	cat "$work"/heard.* | sort >"$work/heard"
	same "$(comm -13 "$work/there" "$work/heard" | head -n 5)" ''
	local ended sums
	ended=$(cat "$work"/bench.* 2>/dev/null | wc -l)
	sums=$(sql -c "select
		(select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history) and
		(select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history) and
		(select sum(bbalance) from pgbench_branches) = (select coalesce(sum(delta), 0) from pgbench_history) and
		(select count(*) from pgbench_history) >= $ended")
	same "$sums" t
	same "$(sql -c "select count(*) from numbers where length(pad) <> n % 3000")" 0
	timeout 100 "$bin/pg_amcheck" --install-missing --heapallindexed --parent-check -d postgres ||
		fail 'pg_amcheck complains'
	echo "round $1: $(wc -l <"$work/heard") numbers, $ended transactions of pgbench"
}

volume 2G
mkdir "$PGHOST"
serve "${options[@]}"
mkdir "$mnt/cluster"
if [ "$(id -u)" -eq 0 ]; then
	chown postgres: "$mnt/cluster" "$PGHOST"
fi
"${as[@]}" timeout 100 "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C \
	--data-checksums >"$work/initdb.log" 2>&1 || fail "initdb: $(cat "$work/initdb.log")"
start_postgres
sql -c 'create table numbers(writer int, round int, n int, pad text, primary key (writer, round, n))'
timeout 200 "$bin/pgbench" -i -q -s "${PG_SCALE:-1}" >/dev/null 2>"$work/pgbench.out" ||
	fail "pgbench -i: $(cat "$work/pgbench.out")"

for round in $(seq "$rounds"); do
	start_clients "$round"
	before=$(cat "$work"/heard.* | wc -l)
	sleep "$seconds"
	eventually heard $((before + 20))
	eventually benched "$round"
	kill -9 "$server"
	server_ended 137 2>/dev/null
	kill_postgres
	end_clients
	serve "${options[@]}"
	start_postgres
	check_database "$round"
done
stop_postgres
"${as[@]}" timeout 100 "$bin/pg_checksums" --check -D "$data" >"$work/sums.log" 2>&1 ||
	fail "pg_checksums: $(cat "$work/sums.log")"
unserve
"$fsck" -n -f --data "$image" || fail 'fsck complains'
