//! `mode` and `permits`: whether the lock is shared.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprUnary, Lit, LitStr, UnOp};

use super::duration::Setting;
use super::options::Options;
use super::{Checked, in_braces, place_of_check, plain, text};
use crate::cache_lock::parse::Function;
use crate::mistakes::Mistakes;

/// The method call that makes the request a shared one. `None` for an exclusive lock.
pub(super) fn sharing(options: &mut Options, function: &Function, mistakes: &mut Mistakes) -> Option<Setting> {
    let mode = options.value("mode", "\"read\"", mistakes);
    let permits = options.value("permits", "4", mistakes);
    if let (Some(_), Some(permits)) = (&mode, &permits) {
        mistakes.at(
            permits,
            "`permits` and `mode` can't be combined: a holder of a permit neither reads nor writes; keep one",
        );
        return None;
    }
    match (mode, permits) {
        (Some(mode), _) => {
            let reads = reads(&mode, mistakes);
            reads.then(|| Setting { method: "read", value: TokenStream::new(), place: mode.span(), checked: None })
        }
        (None, Some(written)) => {
            let value = permits_of(&written, mistakes)?;
            let span = written.span().resolved_at(Span::mixed_site());
            let known = place_of_check(&written, function);
            let checked = known.map(|place| Checked { value: quote_spanned!(span=> (#written) as _), place });
            Some(Setting { method: "permits", value, place: written.span(), checked })
        }
        (None, None) => None,
    }
}

/// A lease that no later hold could use does not linger.
pub(super) fn check_lease_can_linger(settings: &[Setting], mistakes: &mut Mistakes) {
    let has = |option: &str| settings.iter().find(|setting| setting.method.starts_with(option));
    // Zero keeps nothing.
    let Some(linger) = has("linger").filter(|linger| linger.value.to_string() != "0u64") else { return };
    let is_renewed = has("renew").is_none_or(|renew| renew.value.to_string() != "false");
    let problem = match (has("permits"), has("read")) {
        (Some(_), _) => {
            "a permit does not linger: nobody else could use a permit that is kept; keep one of the two options"
        }
        (_, Some(_)) if !is_renewed || has("max_hold").or(has("at_least")).is_some() => {
            "a reader with `renew = false`, `max_hold` or `at_least` has a lease of its own, which no other hold could use \
             again: leave `linger` out"
        }
        _ => return,
    };
    mistakes.add(syn::Error::new(linger.place, problem));
}

/// A reader writes nothing that could arrive late.
pub(super) fn check_delay_has_a_writer(settings: &[Setting], mistakes: &mut Mistakes) {
    let has = |option: &str| settings.iter().find(|setting| setting.method.starts_with(option));
    if let (Some(_), Some(delay)) = (has("read"), has("lock_delay").filter(|delay| delay.value.to_string() != "0u64")) {
        let problem = "a reader has sent no write that could still arrive: leave `lock_delay` or `mode = \"read\"` out";
        mistakes.add(syn::Error::new(delay.place, problem));
    }
}

/// `mode = "write"` is the same as no mode.
fn reads(mode: &Expr, mistakes: &mut Mistakes) -> bool {
    match text(mode).map(LitStr::value).as_deref() {
        Some("read") => true,
        Some("write") => false,
        _ => {
            mistakes.at(
                mode,
                "write `mode = \"read\"` to share the lock with other readers, or `mode = \"write\"` to have it alone",
            );
            false
        }
    }
}

/// A literal is checked here, a constant by the compiler, and any other number when the lock is acquired.
fn permits_of(written: &Expr, mistakes: &mut Mistakes) -> Option<TokenStream> {
    let problem = match plain(written) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => match number.base10_parse::<u32>() {
            Ok(u32::MAX) | Err(_) => "at most 4294967294 permits are possible",
            Ok(0) => "nobody could get one of 0 permits: write how many may hold the lock at once, at least 1",
            Ok(permits) if number.suffix().is_empty() => return Some(Literal::u32_suffixed(permits).to_token_stream()),
            Ok(_) => return Some(written.to_token_stream()),
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => "the number of permits can't be negative: write at least 1",
        Expr::Lit(_) => "`permits` is how many may hold the lock at once: write an integer, as in `permits = 4`",
        _ => return Some(in_braces(written).to_token_stream()),
    };
    mistakes.at(written, problem);
    None
}
