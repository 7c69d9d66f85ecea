//! Options that are written once, on an `impl` block or a trait, and apply to each locked fn in it.

use super::options::Options;
use crate::cache_lock::parse::{Block, Written};
use crate::mistakes::Mistakes;

pub(in crate::cache_lock) fn of_block(written: Vec<Written>, block: &Block, mistakes: &mut Mistakes) -> Vec<Written> {
    let mut options = Options::new(written, mistakes);
    if let Some(proxy) = options.take("proxy") {
        mistakes.at(proxy.name, super::PROXY_GOES_ON_A_TRAIT);
    }
    let inherited = inherited(options, mistakes);
    let out_of_reach = block.out_of_reach();
    if block.options_of_fns().is_empty() && out_of_reach.is_empty() {
        mistakes.add(syn::Error::new(
            block.place,
            "no fn of this block is locked: put `#[cache_lock(key = id)]`, by this name, above each fn that needs the lock",
        ));
    }
    for mistake in out_of_reach {
        mistakes.add(mistake);
    }
    inherited
}

/// All but those that belong to one fn: its key, and names in its body.
pub(super) fn inherited(options: Options, mistakes: &mut Mistakes) -> Vec<Written> {
    let (of_one_fn, inherited): (Vec<Written>, _) = options
        .written
        .into_iter()
        .partition(|option| ["key", "keys", "guard", "fenced"].iter().any(|name| option.name == name));
    for option in of_one_fn {
        let name = &option.name;
        mistakes.at(name, format!("`{name}` is about one fn: write it in the `#[cache_lock(…)]` above the fn"));
    }
    inherited
}

/// The inherited options that a fn's own ones do not replace. Another spelling replaces an option, too.
pub(in crate::cache_lock) fn beside<'a>(own: &[Written], inherited: &'a [Written]) -> Vec<&'a Written> {
    let is_replaced = |option: &Written| own.iter().any(|own| family(own) == family(option));
    inherited.iter().filter(|option| !is_replaced(option)).collect()
}

/// The common part of an option's spellings.
fn family(option: &Written) -> String {
    let name = option.name.to_string();
    let stem = name.strip_suffix("_ms").or(name.strip_suffix("_s")).unwrap_or(&name);
    // Each of the two says how the lock is shared.
    if stem == "permits" { "mode".to_owned() } else { stem.to_owned() }
}
