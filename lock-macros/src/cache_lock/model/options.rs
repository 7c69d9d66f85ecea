//! The options that exist, and looking them up.

use syn::Expr;

use crate::cache_lock::parse::Written;
use crate::mistakes::Mistakes;

const OPTIONS: &str = "
    prefix  key  keys  timeout_ms  timeout_s  timeout  expire_ms  expire_s  expire  linger_ms  linger_s  linger  renew
    mode  permits  max_hold_ms  max_hold_s  max_hold  at_least_ms  at_least_s  at_least  lock_delay_ms  lock_delay_s
    lock_delay  note  on_fail  on_lost  on_busy  manager  guard  fenced  proxy  crate
";

/// The options by name, each at most once.
pub(super) struct Options {
    pub(super) written: Vec<Written>,
    /// Whether some option could not be read; a missing one may be that.
    pub(super) has_unknown: bool,
}

impl Options {
    /// Unknown and repeated options are mistakes; the first of a repeated one counts.
    pub(super) fn new(all: Vec<Written>, mistakes: &mut Mistakes) -> Self {
        let mut written: Vec<Written> = Vec::new();
        let mut has_unknown = !mistakes.is_empty();
        for option in all {
            let name = option.name.to_string();
            if !OPTIONS.split_whitespace().any(|option| option == name) {
                mistakes.at(&option.name, unknown_option(&name));
                has_unknown = true;
            } else if written.iter().any(|known| known.name == option.name) {
                mistakes.at(&option.name, format!("`{name}` is given twice: keep one"));
            } else {
                written.push(option);
            }
        }
        Self { written, has_unknown }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Written> {
        let position = self.written.iter().position(|option| option.name == name)?;
        Some(self.written.swap_remove(position))
    }

    /// The value of an option that needs one.
    pub(super) fn value(&mut self, name: &str, example: &str, mistakes: &mut Mistakes) -> Option<Expr> {
        let option = self.take(name)?;
        if option.value.is_none() {
            mistakes.at(&option.name, format!("`{name}` lacks its value: write `{name} = {example}`"));
        }
        option.value
    }
}

/// Other libraries' option names, and ours for each.
const OTHERS: &[(&str, &str)] = &[
    ("acquire_timeout", "timeout"),
    ("at_most", "max_hold"),
    ("at_most_for", "max_hold"),
    ("at_least_for", "at_least"),
    ("blocking_timeout", "timeout"),
    ("comment", "note"),
    ("delay", "lock_delay"),
    ("exclusive", "mode = \"write\""),
    ("fallback", "on_fail"),
    ("lease", "expire"),
    ("lease_time", "expire"),
    ("lock_at_least_for", "at_least"),
    ("lock_at_most_for", "expire"),
    ("max_concurrent", "permits"),
    ("name", "prefix"),
    ("read", "mode = \"read\""),
    ("reason", "note"),
    ("replace", "on_busy = \"replace\""),
    ("semaphore", "permits"),
    ("shared", "mode = \"read\""),
    ("ttl", "expire"),
    ("wait", "timeout"),
    ("wait_time", "timeout"),
];

fn unknown_option(name: &str) -> String {
    let stem = name.strip_suffix("_ms").or(name.strip_suffix("_s")).unwrap_or(name);
    if let Some((_, option)) = OTHERS.iter().find(|(other, _)| *other == stem) {
        return format!("unknown option `{name}`: did you mean `{option}`?");
    }
    let options: Vec<_> = OPTIONS.split_whitespace().collect();
    let closest = options
        .iter()
        .map(|option| (distance(name, option), option))
        .min()
        .filter(|(distance, option)| *distance <= 2 && *distance < option.len());
    match closest {
        Some((_, option)) => format!("unknown option `{name}`: did you mean `{option}`?"),
        None => format!("unknown option `{name}`: the options are {}", options.join(", ")),
    }
}

/// The edit distance: how many letters to add, remove or replace to turn one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut left = i + 1;
        let mut next = vec![left];
        for (b, above) in to.chars().zip(row.windows(2)) {
            if let &[diagonal, above] = above {
                left = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
                next.push(left);
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
