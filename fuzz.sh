#!/usr/bin/env bash
# Has the targets for a fuzzer read random bytes, for as long as one likes: FUZZ_MINUTES=60 ./fuzz.sh [TARGET…]
#
# Without a number each target has a minute. First a target reads its corpus, in `src/__fuzz__` of its crate. A failure shows the input, made
# short, and the seed that repeats it: mend what it shows, and add the input to the corpus, which every run of the tests reads.
set -euo pipefail
cd "$(dirname "$0")"

targets=(wire replies pushes urls keys tickets macro)
[ $# = 0 ] || targets=("$@")
export BOLERO_RANDOM_TEST_TIME_MS=$((${FUZZ_MINUTES:-1} * 60000))

for target in "${targets[@]}"; do
  case $target in
    macro) package=lock-macros ;;
    wire | urls) package=lock-wire ;;
    *) package=lock-runtime ;;
  esac
  cargo test -p "$package" --lib -- "fuzz_$target" --nocapture
done
