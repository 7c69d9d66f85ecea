//! What the options mean: every rule of the attribute, one function each.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprBlock, ExprLit, FnArg, Ident, Lit, LitStr, Pat, Path, Stmt, Token, parse_quote};

use super::parse::{Function, Written};
use crate::any_token;
use crate::mistakes::Mistakes;
pub(super) use bindings::bindings;
use bindings::{bindings_of_pattern, mentions, variables};
use constant::place_of_check;
pub(super) use constant::{Checked, Place};
pub(super) use duration::Setting;
pub(super) use inherited::{beside, of_block};
pub(super) use key::Key;
pub(super) use keys::Keys;
use options::Options;
pub(super) use proxy::{InPlaceOfSelf, Proxy, ProxyMember, check_mock_comes_last, is_self, proxy, runtime_of};
pub(super) use shape::{Shape, Start};

mod bindings;
mod constant;
mod duration;
mod inherited;
mod key;
mod keys;
mod mode;
mod on_busy;
mod options;
mod proxy;
mod quoted;
mod shape;

/// In bytes, as in the runtime.
const LONGEST_NOTE: usize = 128;

const PROXY_GOES_ON_A_TRAIT: &str =
    "`proxy` goes on a trait: write `#[cache_lock(proxy = LockedShop)]` above `trait Shop`, and leave it out here";

/// A use of the attribute without mistakes.
pub(super) struct Lock {
    /// The path of the runtime.
    pub(super) runtime: Path,
    pub(super) prefix: Prefix,
    pub(super) key: Key,
    /// The method calls that set up the request.
    pub(super) settings: Vec<Setting>,
    /// A variant of the runtime's `OnLost`.
    pub(super) on_lost: Option<&'static str>,
    /// A variant of the runtime's `OnBusy`.
    pub(super) on_busy: Option<&'static str>,
    /// `None`: the scoped or installed manager.
    pub(super) manager: Option<Manager>,
    pub(super) on_fail: OnFail,
    /// The guard's name in the body.
    pub(super) guard: Option<Ident>,
    /// The fencing token's name in the body.
    pub(super) fenced: Option<Ident>,
    pub(super) shape: Shape,
    /// The variables that move into the body, in order.
    pub(super) arguments: Vec<Argument>,
    /// Whether the body may change an argument.
    pub(super) changes_arguments: bool,
}

pub(super) struct Argument {
    pub(super) name: Ident,
    /// Its `cfg` attributes.
    pub(super) conditions: Vec<Attribute>,
    /// It is unused, and the compiler should report that.
    pub(super) is_unused: bool,
    /// Lint attributes that move to the variable that the compiler then reports.
    pub(super) lints: Vec<Attribute>,
}

pub(super) enum Prefix {
    /// `is_const`: the compiler can check it.
    Written { text: Expr, is_const: bool },
    /// The module path and this name.
    FnName(String),
}

pub(super) enum Manager {
    Given(Expr),
    /// The field `manager` of this `self`.
    OfProxy(Token![self]),
}

/// What the fn returns when the lock failed.
pub(super) enum OnFail {
    /// The return type can carry the error.
    FromLockError,
    Value(Expr),
    Closure(Expr),
}

/// `None` when the fn can't be locked at all; other mistakes are only added.
pub(super) fn model(written: Vec<Written>, function: &Function, mistakes: &mut Mistakes) -> Option<Lock> {
    let used_outside = used_outside(&written, function);
    let mut options = Options::new(written, mistakes);
    let shape = shape::shape(function, mistakes);
    let prefix = prefix(&mut options, function, mistakes);
    let has_several_keys = options.written.iter().any(|option| option.name == "keys");
    let key = key::key(&mut options, function, shape.as_ref(), mistakes);
    let mut settings = duration::settings(&mut options, function, mistakes);
    settings.extend(renew(&mut options));
    settings.extend(note(&mut options, mistakes));
    settings.extend(mode::sharing(&mut options, function, mistakes));
    mode::check_lease_can_linger(&settings, mistakes);
    mode::check_delay_has_a_writer(&settings, mistakes);
    let is_blocking = shape.as_ref().is_some_and(Shape::is_blocking);
    let on_busy = on_busy::on_busy(&mut options, &settings, has_several_keys, mistakes);
    let on_lost = on_lost(&mut options, is_blocking, mistakes);
    let manager = options.value("manager", "self.locks", mistakes).map(Manager::Given);
    if let Some(proxy) = options.take("proxy") {
        mistakes.at(proxy.name, PROXY_GOES_ON_A_TRAIT);
    }
    let on_fail = on_fail(&mut options, mistakes);
    let guard = name(&mut options, "guard", "guard", mistakes);
    let fenced = name(&mut options, "fenced", "token", mistakes);
    check_names_differ(guard.as_ref(), fenced.as_ref(), mistakes);
    for name in guard.iter().chain(&fenced) {
        check_is_no_argument(name, function, shape.as_ref(), mistakes);
    }
    let runtime = runtime(&mut options, mistakes);
    let shape = shape?;
    check_failure_can_be_returned(&shape, &on_fail, function, mistakes);
    let key = key?;
    let argument = |name| {
        let conditions = conditions(&name, function);
        let is_unused = conditions.is_empty() && is_unused(&name, &used_outside, function);
        let of_unused = |attribute: &&Attribute| is_unused && is_about_unused(attribute);
        let lints = attributes(&name, function).iter().filter(of_unused).cloned().collect();
        Argument { name, conditions, is_unused, lints }
    };
    let arguments = arguments(&shape, &key, &on_fail, function).into_iter().map(argument).collect();
    let changes_arguments = changes_arguments(&shape, function);
    Some(Lock {
        runtime,
        prefix,
        key,
        settings,
        on_lost,
        on_busy,
        manager,
        on_fail,
        guard,
        fenced,
        shape,
        arguments,
        changes_arguments,
    })
}

/// The inside of `{ N }`: the braces only keep the compiler from checking the constant, and in a call they would be unnecessary.
fn in_braces(written: &Expr) -> &Expr {
    match plain(written) {
        Expr::Block(ExprBlock { attrs, label: None, block }) if attrs.is_empty() => match block.stmts.as_slice() {
            [Stmt::Expr(inside @ Expr::Path(_), None)] => inside,
            _ => written,
        },
        _ => written,
    }
}

/// The expression without parentheses and without the invisible group that `macro_rules!` puts around a fragment.
fn plain(mut expression: &Expr) -> &Expr {
    loop {
        expression = match expression {
            Expr::Group(group) => &group.expr,
            Expr::Paren(paren) => &paren.expr,
            other => return other,
        }
    }
}

fn text(expression: &Expr) -> Option<&LitStr> {
    match plain(expression) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

/// The prefix is written by the author: a literal, checked here by the runtime's rule, or a const.
fn prefix(options: &mut Options, function: &Function, mistakes: &mut Mistakes) -> Prefix {
    let Some(written) = options.value("prefix", "\"order\"", mistakes) else {
        return Prefix::FnName(function.signature.ident.to_string().trim_start_matches("r#").to_owned());
    };
    if let Some(text) = text(&written) {
        if let Some(problem) = problem_of_prefix(&text.value()) {
            mistakes.at(text, format!("the prefix {problem}"));
        }
        return Prefix::Written { text: written, is_const: false };
    }
    match plain(&written) {
        Expr::Path(path) if is_argument(path.path.get_ident(), function) => mistakes.at(
            &written,
            "the prefix is the author's text, taken as it is: pass what comes from outside with `key = …`",
        ),
        Expr::Path(_) => {}
        _ => mistakes.at(&written, "the prefix is a string literal or the path of a `const`"),
    }
    Prefix::Written { is_const: place_of_check(&written, function).is_some(), text: written }
}

fn problem_of_prefix(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("is empty: name what is locked, or leave `prefix` out to use the fn's path");
    }
    if text.contains(['{', '}']) {
        return Some("contains a brace, which would move the lock to another cluster slot: leave it out");
    }
    let is_unfit = |c: char| c.is_whitespace() || c.is_control();
    text.contains(is_unfit).then_some("contains a blank or a control character: leave it out")
}

fn is_argument(name: Option<&Ident>, function: &Function) -> bool {
    name.is_some_and(|name| {
        let arguments = function.signature.inputs.iter();
        arguments.flat_map(bindings).any(|argument| argument == *name)
    })
}

/// `renew` alone means `renew = true`.
fn renew(options: &mut Options) -> Option<Setting> {
    let option = options.take("renew")?;
    let value = option.value.unwrap_or_else(|| parse_quote!(true));
    Some(Setting { method: "renew", place: value.span(), value: value.into_token_stream(), checked: None })
}

/// Any text. It is borrowed, because the argument that it names may move into the body.
fn note(options: &mut Options, mistakes: &mut Mistakes) -> Option<Setting> {
    let written = options.value("note", "format!(\"for {user}\")", mistakes)?;
    let problem = match plain(&written) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => problem_of_note(&text.value()),
        Expr::Lit(_) => Some("`note` is a text: write `note = \"nightly import\"`, or `note = format!(…)`"),
        _ => None,
    };
    if let Some(problem) = problem {
        mistakes.at(&written, problem);
        return None;
    }
    let (place, value) = (written.span(), in_braces(&written));
    let span = place.resolved_at(Span::mixed_site());
    Some(Setting { method: "note", value: quote_spanned!(span=> &(#value)), place, checked: None })
}

fn problem_of_note(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("an empty note says nothing: leave it out");
    }
    if text.len() > LONGEST_NOTE {
        return Some("a note has at most 128 bytes: write who or what needs the lock, and no more");
    }
    text.contains(char::is_control).then_some("a note has no control characters, such as a line break: leave it out")
}

/// A closure on a thread can't be stopped.
fn on_lost(options: &mut Options, is_blocking: bool, mistakes: &mut Mistakes) -> Option<&'static str> {
    let written = options.value("on_lost", "\"cancel\"", mistakes)?;
    match text(&written).map(LitStr::value).as_deref() {
        Some("cancel") if is_blocking => {
            mistakes.at(
                &written,
                "a fn that is not async can't be stopped: it runs to its end, and its caller learns that the lock was lost; \
                 write `async fn`, or leave `on_lost` out",
            );
            None
        }
        Some("cancel") => Some("Cancel"),
        Some("continue") => Some("Continue"),
        _ => {
            mistakes.at(
                &written,
                "write `on_lost = \"cancel\"` to stop the body, or `on_lost = \"continue\"` to let it run on",
            );
            None
        }
    }
}

fn on_fail(options: &mut Options, mistakes: &mut Mistakes) -> OnFail {
    let Some(written) = options.value("on_fail", "|err| …", mistakes) else {
        return OnFail::FromLockError;
    };
    let Expr::Closure(closure) = plain(&written) else {
        return OnFail::Value(written);
    };
    if closure.inputs.len() != 1 {
        mistakes.at(closure, "the closure is called with the error: write `on_fail = |err: LockError| …`");
    }
    if let Some(asyncness) = &closure.asyncness {
        mistakes.at(asyncness, "the closure returns the value itself, not a future: remove `async`");
    }
    OnFail::Closure(written)
}

/// `guard` and `fenced` introduce a variable.
fn name(options: &mut Options, option: &str, example: &str, mistakes: &mut Mistakes) -> Option<Ident> {
    let written = options.value(option, example, mistakes)?;
    let name = new_name(&written);
    if name.is_none() {
        mistakes.at(&written, format!("`{option}` introduces a variable: write `{option} = {example}`"));
    }
    name
}

/// The identifier, if a new variable may have it: a path can also be one of four keywords.
fn new_name(written: &Expr) -> Option<Ident> {
    let Expr::Path(path) = plain(written) else { return None };
    let name = path.path.get_ident().filter(|_| path.attrs.is_empty())?;
    (!["self", "Self", "super", "crate"].iter().any(|keyword| name == keyword)).then(|| name.clone())
}

fn check_names_differ(guard: Option<&Ident>, fenced: Option<&Ident>, mistakes: &mut Mistakes) {
    if let (Some(guard), Some(fenced)) = (guard, fenced)
        && guard == fenced
    {
        mistakes.at(fenced, format!("`{fenced}` is already the guard's name: choose another one"));
    }
}

fn check_is_no_argument(name: &Ident, function: &Function, shape: Option<&Shape>, mistakes: &mut Mistakes) {
    let behind_async_trait = shape.and_then(Shape::variables_of_prelude).unwrap_or_default();
    if is_argument(Some(name), function) || behind_async_trait.contains(name) {
        mistakes.at(name, format!("`{name}` is an argument already: choose another name"));
    }
}

fn runtime(options: &mut Options, mistakes: &mut Mistakes) -> Path {
    let default = parse_quote!(::lock_runtime);
    let Some(written) = options.value("crate", "::lock_runtime", mistakes) else {
        return default;
    };
    match plain(&written) {
        Expr::Path(path) if path.qself.is_none() && path.path.segments.iter().all(|part| part.arguments.is_none()) => {
            path.path.clone()
        }
        _ => {
            let example = text(&written).map_or_else(|| "::lock_runtime".to_owned(), LitStr::value);
            mistakes.at(&written, format!("`crate` is the path of the runtime: write `crate = {example}`"));
            default
        }
    }
}

/// All variables of the arguments except an iterator that the keys use up, and those that `on_fail` mentions, which are used after the
/// body.
fn arguments(shape: &Shape, key: &Key, on_fail: &OnFail, function: &Function) -> Vec<Ident> {
    let mut arguments = shape.variables_of_prelude().unwrap_or_else(|| variables(&function.signature.inputs));
    let used_up = match key {
        Key::Several(Keys::Iterator(used_up)) => Some(used_up.clone()),
        Key::Several(Keys::Value(value)) => keys::used_up_argument(value),
        _ => None,
    };
    arguments.retain(|argument| Some(argument) != used_up.as_ref());
    if let OnFail::Value(after) | OnFail::Closure(after) = on_fail {
        // The `tx` of `|tx| …` is the closure's own, even if an argument has that name.
        let own = if let Expr::Closure(closure) = plain(after) {
            closure.inputs.iter().flat_map(bindings_of_pattern).collect()
        } else {
            Vec::new()
        };
        let after = after.to_token_stream();
        arguments.retain(|argument| own.contains(argument) || !mentions(after.clone(), argument));
    }
    arguments
}

/// Whether the body may change an argument's variable.
fn changes_arguments(shape: &Shape, function: &Function) -> bool {
    let is_mut = |pattern: &Pat| any_token(pattern.to_token_stream(), &|token| token.to_string() == "mut");
    let mut arguments = function.signature.inputs.iter();
    let is_any = arguments.any(|argument| match argument {
        FnArg::Receiver(receiver) => receiver.mutability.is_some(),
        FnArg::Typed(typed) => is_mut(&typed.pat),
    });
    is_any || shape.patterns_of_prelude().any(is_mut)
}

/// The tokens outside the body that use arguments: options and marks.
fn used_outside(written: &[Written], function: &Function) -> TokenStream {
    let values = written.iter().filter_map(|option| option.value.as_ref()).map(ToTokens::to_token_stream);
    let marked = function.marks.iter().filter_map(|mark| function.signature.inputs.get(mark.argument));
    let marked = marked.flat_map(bindings).map(ToTokens::into_token_stream);
    values.chain(marked).collect()
}

/// The attributes of the argument that introduces this variable.
fn attributes<'a>(variable: &Ident, function: &'a Function) -> &'a [Attribute] {
    let found = function.signature.inputs.iter().find(|argument| bindings(argument).contains(variable));
    if let Some(FnArg::Typed(typed)) = found { &typed.attrs } else { &[] }
}

/// The argument's `cfg` attributes.
fn conditions(argument: &Ident, function: &Function) -> Vec<Attribute> {
    let is_condition = |attribute: &&Attribute| attribute.path().is_ident("cfg");
    attributes(argument, function).iter().filter(is_condition).cloned().collect()
}

/// Whether the compiler would report the argument as unused without this macro.
fn is_unused(argument: &Ident, used_outside: &TokenStream, function: &Function) -> bool {
    let body = function.body.as_ref().map(|body| body.tokens.clone()).unwrap_or_default();
    *argument != "self"
        && !argument.to_string().starts_with('_')
        && !mentions(used_outside.clone(), argument)
        && !mentions(body, argument)
}

/// Whether it sets the level of the lint for unused variables, as `#[cfg_attr(test, expect(unused))]` does.
pub(super) fn is_about_unused(attribute: &Attribute) -> bool {
    let is_level =
        ["allow", "expect", "warn", "deny", "forbid", "cfg_attr"].iter().any(|name| attribute.path().is_ident(name));
    let names =
        |token: TokenTree| ["unused_variables", "unused", "warnings"].iter().any(|name| token.to_string() == *name);
    is_level && any_token(attribute.meta.to_token_stream(), &names)
}

/// The type system finds most of these through the runtime's `FromLockError`; a fn that returns nothing has no return type to point at.
fn check_failure_can_be_returned(shape: &Shape, on_fail: &OnFail, function: &Function, mistakes: &mut Mistakes) {
    if !matches!(on_fail, OnFail::FromLockError) || !shape.returns_nothing() {
        return;
    }
    mistakes.at(
        &function.signature.ident,
        "this fn returns nothing, so it can't say that the lock was not obtained: \
         return `Result<_, E>` with `E: From<LockError>`, or add `on_fail = ()`",
    );
}
