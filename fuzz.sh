#!/usr/bin/env bash
# Has a fuzzer write what strangers write, for as long as one likes: FUZZ_MINUTES=60 ./fuzz.sh [TARGET…]
#
# Without a number each target has a minute. libFuzzer looks for inputs that reach code that no other input has reached; it needs no
# nightly compiler, as none of this code is unsafe and no sanitizer is used, and a compiler for C++. What it has learned stays in
# target/fuzz/corpus. An input that fails is kept in target/fuzz/failures: mend what it shows, and add it to the target's corpus, in
# `src/__fuzz__`, which every run of the tests reads.
set -euo pipefail
cd "$(dirname "$0")"

seconds=$((${FUZZ_MINUTES:-1} * 60))
targets=(wire replies pushes urls keys tickets macro)
[ $# = 0 ] || targets=("$@")
# What libFuzzer needs to see: which edges of the code an input has taken, and what was compared with what.
flags=(--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
machine=$(rustc -vV | sed -n 's/^host: //p')
found=$PWD/target/fuzz

# The tests of lock-runtime, so compiled that libFuzzer sees what runs. With `--target` build scripts are left as they are.
libfuzzer() {
  local corpus=$found/corpus/$1
  mkdir -p "$corpus" "$found/failures"
  RUSTFLAGS=${flags[*]} \
    BOLERO_LIBFUZZER_ARGS="$corpus $PWD/lock-runtime/src/__fuzz__/$1/corpus -max_total_time=$seconds -artifact_prefix=$found/failures/$1-" \
    cargo test --target "$machine" --target-dir target/fuzz -p lock-runtime --lib -- "fuzz_$1" --nocapture
}

# A crate of macros is always compiled for the compiler, where libFuzzer sees nothing: random bytes, and the corpus.
random() {
  BOLERO_RANDOM_TEST_TIME_MS=$((seconds * 1000)) cargo test -p lock-macros --lib -- "fuzz_$1" --nocapture
}

for target in "${targets[@]}"; do
  case $target in
    macro) random "$target" ;;
    *) libfuzzer "$target" ;;
  esac
done
