//! `on_busy`: whether to wait for the lock, or to take it from its holder.

use syn::LitStr;

use super::duration::Setting;
use super::options::Options;
use super::text;
use crate::mistakes::Mistakes;

/// A variant of the runtime's `OnBusy`. `on_busy = "wait"` is the default.
pub(super) fn on_busy(
    options: &mut Options,
    settings: &[Setting],
    has_several_keys: bool,
    mistakes: &mut Mistakes,
) -> Option<&'static str> {
    let written = options.value("on_busy", "\"replace\"", mistakes)?;
    match text(&written).map(LitStr::value).as_deref() {
        Some("wait") => None,
        Some("replace") => {
            if let Some(problem) = problem_beside(settings, has_several_keys) {
                mistakes.at(&written, problem);
            }
            Some("Replace")
        }
        _ => {
            mistakes.at(
                &written,
                "write `on_busy = \"replace\"` to take the lock from its holder, or `on_busy = \"wait\"` to wait for it",
            );
            None
        }
    }
}

/// Why `on_busy = "replace"` does not go with the other options.
fn problem_beside(settings: &[Setting], has_several_keys: bool) -> Option<&'static str> {
    let has = |option: &str| settings.iter().find(|setting| setting.method.starts_with(option));
    let tries_once = |timeout: &Setting| timeout.value.to_string().trim_end_matches("u64") == "0";
    if has("read").is_some() {
        return Some("a reader shares the lock and takes it from nobody: leave `mode = \"read\"` or `on_busy` out");
    }
    if has("permits").is_some() {
        return Some("several hold a permit, and none of them is the one to replace: leave `permits` or `on_busy` out");
    }
    if has_several_keys {
        return Some(
            "`replace` is for one key: a fn that locks several keys waits for each of them; leave `on_busy` out",
        );
    }
    has("timeout").is_some_and(tries_once).then_some(
        "`replace` waits until the holder has stopped, and a timeout of zero waits for nobody: write a longer timeout",
    )
}
