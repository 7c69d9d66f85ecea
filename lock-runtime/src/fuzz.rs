//! What strangers write, as a fuzzer writes it: a target for each reader of this crate.
//!
//! A target is a test, named `fuzz_…` and beside what it reads. In an ordinary run it reads its corpus, in `src/__fuzz__`, and then random
//! bytes for a second; with `./fuzz.sh` for as long as one likes.

use std::panic::RefUnwindSafe;

/// Has the target read any bytes. It fails by panicking.
pub(crate) fn any_bytes(target: &str, read: impl Fn(&[u8]) + RefUnwindSafe) {
    bolero::check!(name = target).for_each(|bytes: &[u8]| read(bytes));
}

/// The same for what reads text.
pub(crate) fn any_text(target: &str, read: impl Fn(&str) + RefUnwindSafe) {
    any_bytes(target, |bytes| read(&String::from_utf8_lossy(bytes)));
}
