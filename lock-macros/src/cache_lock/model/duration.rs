//! `timeout…`, `expire…`, `linger…`, `max_hold…`, `at_least…` and `lock_delay…`: three spellings each. What a literal shows is checked
//! here.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Expr, ExprLit, Lit, LitInt, LitStr, UnOp};

use super::{Checked, Options, Place, in_braces, place_of_check, plain};
use crate::cache_lock::parse::Function;
use crate::mistakes::Mistakes;

/// A method call on the request: `.timeout_ms(500u64)`.
pub(in crate::cache_lock) struct Setting {
    pub(in crate::cache_lock) method: &'static str,
    pub(in crate::cache_lock) value: TokenStream,
    /// The span of the value as written.
    pub(in crate::cache_lock) place: Span,
    /// The check for the compiler, when the value is constant.
    pub(in crate::cache_lock) checked: Option<Checked>,
}

/// One of the times of a lock, and its spellings.
struct Kind {
    in_ms: &'static str,
    in_s: &'static str,
    any: &'static str,
    /// `None` for a time without bounds.
    bounds: Option<Bounds>,
}

impl Kind {
    /// Whether the runtime has a `const` check of it.
    fn is_checked(&self) -> bool {
        self.bounds.as_ref().is_some_and(|bounds| bounds.has_const_check)
    }
}

/// The messages about a time out of bounds.
struct Bounds {
    zero: &'static str,
    too_short: &'static str,
    too_long: &'static str,
    shortest: u64,
    longest: u64,
    /// Whether the runtime's `__private.rs` can check a constant at compile time.
    has_const_check: bool,
}

const TIMEOUT: Kind = Kind { in_ms: "timeout_ms", in_s: "timeout_s", any: "timeout", bounds: None };

const EXPIRE: Kind = Kind { in_ms: "expire_ms", in_s: "expire_s", any: "expire", bounds: Some(LEASE) };

const LINGER: Kind = Kind { in_ms: "linger_ms", in_s: "linger_s", any: "linger", bounds: Some(KEPT) };

const MAX_HOLD: Kind = Kind { in_ms: "max_hold_ms", in_s: "max_hold_s", any: "max_hold", bounds: Some(HOLD) };

const AT_LEAST: Kind = Kind { in_ms: "at_least_ms", in_s: "at_least_s", any: "at_least", bounds: Some(REST) };

const LOCK_DELAY: Kind = Kind { in_ms: "lock_delay_ms", in_s: "lock_delay_s", any: "lock_delay", bounds: Some(DELAY) };

const LEASE: Bounds = Bounds {
    zero: "a lease of zero is over before the body starts: write how long a crashed holder may keep others out",
    too_short: "a lease of less than 10 ms ends before it can be used",
    too_long: "a lease of more than a year is a unit mistaken for another: after a crash nobody could lock until then",
    shortest: SHORTEST,
    longest: LONGEST,
    has_const_check: true,
};

const HOLD: Bounds = Bounds {
    zero: "a hold of zero is over before the body starts: write how long the body may take",
    too_short: "a hold of less than 10 ms ends before it can be used",
    too_long: "a hold of more than a year is a unit mistaken for another: for a hold without a limit leave `max_hold` out",
    shortest: SHORTEST,
    longest: LONGEST,
    has_const_check: true,
};

const REST: Bounds = Bounds {
    zero: "an `at_least` of zero keeps nobody out: write for how long no other may get the lock, or leave it out",
    too_short: "",
    too_long: "a time of more than a year is a unit mistaken for another: nobody could lock until then",
    shortest: 1,
    longest: LONGEST,
    // A zero may come from a setting that switches it off.
    has_const_check: false,
};

const DELAY: Bounds = Bounds {
    // Zero switches off the manager's setting.
    shortest: 0,
    zero: "",
    ..REST
};

const KEPT: Bounds = Bounds {
    zero: "",
    too_short: "",
    too_long: "a lock lingers for at most 2 s: other clients find it taken for so long",
    // Zero switches it off.
    shortest: 0,
    longest: LONGEST_LINGER,
    has_const_check: true,
};

/// In milliseconds, as in the runtime.
const LONGEST_LINGER: u64 = 2000;

/// In milliseconds, as in the runtime: 10 ms for a lease and a hold, and a year.
const SHORTEST: u64 = 10;
const LONGEST: u64 = 365 * 24 * 60 * 60 * 1000;

pub(super) fn settings(options: &mut Options, function: &Function, mistakes: &mut Mistakes) -> Vec<Setting> {
    [TIMEOUT, EXPIRE, LINGER, MAX_HOLD, AT_LEAST, LOCK_DELAY]
        .iter()
        .filter_map(|kind| setting(kind, options, function, mistakes))
        .collect()
}

/// A second spelling is a mistake, even with the same value.
fn setting(kind: &Kind, options: &mut Options, function: &Function, mistakes: &mut Mistakes) -> Option<Setting> {
    let mut spellings = [kind.in_ms, kind.in_s, kind.any]
        .into_iter()
        .filter_map(|spelling| options.take(spelling).map(|option| (spelling, option)));
    let (spelling, option) = spellings.next()?;
    for (second, option) in spellings {
        mistakes.at(option.name, format!("`{second}` and `{spelling}` set the same time: keep one"));
    }
    let Some(value) = option.value else {
        let example = if spelling == kind.any { "\"2s\"" } else { "2" };
        mistakes.at(option.name, format!("`{spelling}` lacks its value: write `{spelling} = {example}`"));
        return None;
    };
    let milliseconds = match spelling {
        spelling if spelling == kind.in_ms => Some(1),
        spelling if spelling == kind.in_s => Some(1000),
        _ => None,
    };
    let known = if kind.is_checked() { place_of_check(&value, function) } else { None };
    let outcome = match milliseconds {
        Some(unit) => number(kind, spelling, unit, &value, known),
        None => duration(kind, &value, known),
    };
    mistakes.ok(outcome)
}

/// `timeout_ms = EXPR`: an integer.
fn number(kind: &Kind, spelling: &'static str, unit: u64, value: &Expr, known: Option<Place>) -> syn::Result<Setting> {
    let any = kind.any;
    let advice = match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            check(kind, number, number.base10_parse().ok(), unit)?;
            let place = number.span();
            return Ok(Setting {
                method: spelling,
                value: with_suffix(number).into_token_stream(),
                place,
                checked: None,
            });
        }
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().parse::<u64>().is_ok() => {
            format!("`{spelling}` takes an integer: write `{spelling} = {}`", text.value())
        }
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            format!("`{spelling}` takes an integer: for a text with a unit write `{any} = {}`", text.token())
        }
        Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => {
            format!("`{spelling}` takes an integer: for a fraction use a smaller unit, such as `{any} = \"1500ms\"`")
        }
        Expr::Lit(_) => format!("`{spelling}` takes an integer, such as `{spelling} = 2`"),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) && matches!(plain(&unary.expr), Expr::Lit(_)) => {
            format!("`{spelling}` can't be negative")
        }
        _ => {
            let (span, number) = (value.span(), without_fallback(in_braces(value)).to_token_stream());
            let known = known.or_else(|| (kind.is_checked() && is_literal_arithmetic(value)).then_some(Place::Item));
            // Works for any integer type.
            let checked = known.map(|place| Checked { value: quote_spanned!(span=> (#number) as _), place });
            return Ok(Setting { method: spelling, value: number, place: span, checked });
        }
    };
    Err(syn::Error::new_spanned(value, advice))
}

/// `timeout = "1500ms"`, or an expression that is a `Duration`.
fn duration(kind: &Kind, value: &Expr, known: Option<Place>) -> syn::Result<Setting> {
    let any = kind.any;
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let (amount, unit) = read(kind, text)?;
            let milliseconds = check(kind, text, amount, unit)?;
            let number = of_u64(&milliseconds.to_string(), text.span());
            Ok(Setting { method: kind.in_ms, value: number.into_token_stream(), place: text.span(), checked: None })
        }
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let Kind { in_ms: ms, in_s: s, .. } = kind;
            let digits = number.base10_digits();
            let advice = format!("in which unit? write `{s} = {digits}`, `{ms} = {digits}` or `{any} = \"{digits}s\"`");
            Err(syn::Error::new_spanned(value, advice))
        }
        Expr::Lit(_) => {
            let advice = format!("`{any}` takes a text with a unit, such as `{any} = \"1500ms\"`, or a `Duration`");
            Err(syn::Error::new_spanned(value, advice))
        }
        _ => {
            let value = in_braces(value).to_token_stream();
            let checked = known.map(|place| Checked { value: value.clone(), place });
            Ok(Setting { method: any, checked, place: value.span(), value })
        }
    }
}

/// Digits and a unit; the number is `None` when it does not fit a `u64`.
fn read(kind: &Kind, text: &LitStr) -> syn::Result<(Option<u64>, u64)> {
    let written = text.value();
    let digits: String = written.chars().take_while(char::is_ascii_digit).collect();
    let unit = match written.strip_prefix(digits.as_str()) {
        Some("ms") => 1,
        Some("s") => 1000,
        Some("m" | "min") => 60 * 1000,
        Some("h") => 60 * 60 * 1000,
        _ => 0,
    };
    if digits.is_empty() || unit == 0 {
        let any = kind.any;
        let advice = format!("write an integer and its unit (ms, s, m or h), such as `{any} = \"1500ms\"`");
        return Err(syn::Error::new_spanned(text, advice));
    }
    Ok((digits.parse().ok(), unit))
}

/// In milliseconds. A time that overflows them is a mistake, and so is a lease that is over before it began; a timeout of zero means one
/// try.
fn check(kind: &Kind, token: &impl ToTokens, amount: Option<u64>, unit: u64) -> syn::Result<u64> {
    let Some(milliseconds) = amount.and_then(|amount| amount.checked_mul(unit)) else {
        let advice = "this time is too long: its milliseconds don't fit into a `u64`";
        return Err(syn::Error::new_spanned(token, advice));
    };
    let Some(bounds) = &kind.bounds else { return Ok(milliseconds) };
    let advice = match milliseconds {
        0 if bounds.shortest > 0 => bounds.zero,
        _ if milliseconds < bounds.shortest => bounds.too_short,
        _ if milliseconds > bounds.longest => bounds.too_long,
        _ => return Ok(milliseconds),
    };
    Err(syn::Error::new_spanned(token, advice))
}

/// Adds `u64` to a literal that would otherwise fall back to `i32`.
fn with_suffix(number: &LitInt) -> LitInt {
    if !number.suffix().is_empty() {
        return number.clone();
    }
    of_u64(number.base10_digits(), number.span())
}

/// It has the place of the user's number, but it is the expansion's: a lint would ask the user to change a text that is not in the source.
fn of_u64(digits: &str, span: Span) -> LitInt {
    LitInt::new(&format!("{digits}u64"), span.resolved_at(Span::mixed_site()))
}

/// `60 * 60 * 24 * 1000` would be computed as `i32` too; an expression with anything but literals has a type already.
fn without_fallback(value: &Expr) -> Expr {
    let mut value = value.clone();
    if is_literal_arithmetic(&value) {
        Suffixed.visit_expr_mut(&mut value);
    }
    value
}

fn is_literal_arithmetic(value: &Expr) -> bool {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.suffix().is_empty(),
        Expr::Binary(binary) => is_literal_arithmetic(&binary.left) && is_literal_arithmetic(&binary.right),
        _ => false,
    }
}

struct Suffixed;

impl VisitMut for Suffixed {
    fn visit_lit_int_mut(&mut self, number: &mut LitInt) {
        *number = with_suffix(number);
    }
}
