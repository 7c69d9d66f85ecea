//! What the attribute becomes: wiring around the body, in line. All behaviour is in the runtime's `__private`.
//!
//! The expansion's own locals are at `mixed_site`, so the body can't see them, and begin with `__`, so no const of the user's is taken for
//! a pattern. The names and expressions that the user wrote keep their span, so errors point there. Every path starts at the runtime: the
//! user's crate may shadow `core`, `std` and the prelude.

use proc_macro2::{Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Block, FnArg, Type, TypeInfer, token};

use super::model::{
    Argument, Checked, Key, Lock, Manager, OnFail, Place, Prefix, Setting, Shape, Start, bindings, is_about_unused,
};
use super::parse::Function;

mod key;
mod moved;
mod proxy;

pub(super) use moved::{below, with_inherited};
pub(super) use proxy::proxy;

use key::{borrowed, key, options_of_all};

pub(super) fn expand(lock: &Lock, function: &Function) -> TokenStream {
    let site = Span::mixed_site();
    let (brace, body) = function.body.as_ref().map(|body| (body.brace, body.tokens.clone())).unwrap_or_default();
    let request = request(lock);
    let inside = match &lock.shape {
        Shape::AsyncFn { .. } => {
            let run = run(lock, &under_lock(lock, brace, &body), &fail(lock));
            quote_spanned!(site=> #request #run)
        }
        Shape::Blocking { .. } => {
            let check = returned(lock);
            let run = run(lock, &under_lock(lock, brace, &body), &fail(lock));
            quote_spanned!(site=> #check #request #run)
        }
        Shape::AsyncTrait { pin, prelude, body, .. } => {
            let request = with_renamed_self(request);
            let body = under_lock(lock, body.brace_token, &statements(body));
            let run = run(lock, &body, &with_renamed_self(fail(lock)));
            quote_spanned!(site=> #pin(async move { #(#prelude)* #request #run }))
        }
        Shape::Future { is_boxed, is_async_fn, start, .. } => {
            let body = match start {
                Start::AsyncBlock(block) => under_lock(lock, block.brace_token, &statements(block)),
                Start::Any(future) => started(lock, future, brace, &body),
            };
            let run = run(lock, &body, &fail(lock));
            let (before, inside) = if *is_async_fn { (None, Some(request)) } else { (Some(request), None) };
            let future = quote_spanned!(site=> async move { #inside #run });
            let future = if *is_boxed { boxed(lock, &future) } else { future };
            quote_spanned!(site=> #before #future)
        }
    };
    let (head, body) = (head(lock, function), in_braces(brace, &inside));
    quote!(#head #body)
}

/// Everything before the body. Lint attributes of an unused argument move to the variable that replaces it in the body.
fn head(lock: &Lock, function: &Function) -> impl ToTokens {
    let mut signature = function.signature.clone();
    for argument in &mut signature.inputs {
        let moves = bindings(argument)
            .iter()
            .any(|name| lock.arguments.iter().any(|argument| argument.name == *name && !argument.lints.is_empty()));
        if let (true, FnArg::Typed(typed)) = (moves, argument) {
            typed.attrs.retain(|attribute| !is_about_unused(attribute));
        }
    }
    function.head(&signature)
}

fn statements(block: &Block) -> TokenStream {
    let statements = &block.stmts;
    quote!(#(#statements)*)
}

/// The user's own braces. From their span the compiler decides whose code a block is: its edition, whether coverage counts its lines, and
/// whether lints apply to it.
fn in_braces(brace: token::Brace, inside: &TokenStream) -> TokenStream {
    let mut tokens = TokenStream::new();
    brace.surround(&mut tokens, |tokens| inside.to_tokens(tokens));
    tokens
}

// Input:
//     #[cache_lock(prefix = PREFIX, key = id, timeout_ms = 500, manager = self.locks, fenced = token)]
//
// Output:
//     const _: () = check_prefix(PREFIX);
//     let options = LockOptions::new(PREFIX, &(id)).timeout_ms(500u64).fenced(true);
//     let manager = Some(ManagerRef::manager(&(self.locks)));
//
// The borrows end with the two `let` statements, before the body takes the arguments.
fn request(lock: &Lock) -> TokenStream {
    let site = Span::mixed_site();
    let private = private(lock);
    let prefix = prefix(lock);
    let options = match &lock.key {
        Key::Several(several) => options_of_all(several, &prefix, &private),
        one => {
            let key = key(one);
            quote_spanned!(site=> #private::LockOptions::new(#prefix, #key))
        }
    };
    let settings = lock.settings.iter().map(|Setting { method, value, .. }| {
        let span = value.span().resolved_at(site);
        let method = Ident::new(method, span);
        quote_spanned!(span=> .#method(#value))
    });
    let on_lost = lock.on_lost.map(|on_lost| {
        let runtime = &lock.runtime;
        let variant = Ident::new(on_lost, site);
        quote_spanned!(site=> .on_lost(#runtime::OnLost::#variant))
    });
    let on_busy = lock.on_busy.map(|on_busy| {
        let runtime = &lock.runtime;
        let variant = Ident::new(on_busy, site);
        quote_spanned!(site=> .on_busy(#runtime::OnBusy::#variant))
    });
    let fenced = lock.fenced.as_ref().map(|_| quote_spanned!(site=> .fenced(true)));
    let on_fail = match lock.on_fail {
        OnFail::FromLockError => None,
        OnFail::Value(_) | OnFail::Closure(_) => Some(quote_spanned!(site=> .expects_failure())),
    };
    let manager = manager(lock);
    let checks = checks(lock);
    quote_spanned! {site=>
        #checks
        let __options = #options #(#settings)* #fenced #on_busy #on_lost #on_fail;
        let __manager = #manager;
    }
}

/// The checks of constants, which the compiler runs.
fn checks(lock: &Lock) -> TokenStream {
    let private = private(lock);
    let check = |option: &str, value: &TokenStream, place: Place| {
        let span = value.span().resolved_at(Span::mixed_site());
        let check = Ident::new(&format!("check_{option}"), span);
        match place {
            Place::Item => quote_spanned!(span=> const _: () = #private::#check(#value);),
            Place::Body => quote_spanned!(span=> const { #private::#check(#value) };),
        }
    };
    let prefix = match &lock.prefix {
        Prefix::Written { text, is_const: true } => Some(check("prefix", &text.to_token_stream(), Place::Item)),
        _ => None,
    };
    let settings = lock.settings.iter().filter_map(|Setting { method, checked, .. }| {
        checked.as_ref().map(|Checked { value, place }| check(method, value, *place))
    });
    prefix.into_iter().chain(settings).collect()
}

fn manager(lock: &Lock) -> TokenStream {
    let site = Span::mixed_site();
    let private = private(lock);
    match &lock.manager {
        None => quote_spanned!(site=> #private::None),
        Some(Manager::OfProxy(this)) => quote_spanned!(site=> #private::core::clone::Clone::clone(&#this.manager)),
        Some(Manager::Given(manager)) => {
            let span = manager.span().resolved_at(site);
            let borrowed = borrowed(&manager.to_token_stream());
            quote_spanned!(span=> #private::Some(#private::ManagerRef::manager(#borrowed)))
        }
    }
}

fn prefix(lock: &Lock) -> TokenStream {
    let private = private(lock);
    match &lock.prefix {
        Prefix::Written { text, .. } => text.to_token_stream(),
        Prefix::FnName(name) => {
            let name = format!("::{name}");
            let site = Span::mixed_site();
            quote_spanned!(site=> #private::core::concat!(#private::core::module_path!(), #name))
        }
    }
}

// Input:
//     async move { body }
//
// Output:
//     let outcome = 'lock: {
//         let held = match enter(options, manager).await {
//             Ok(held) => held,
//             Err(error) => break 'lock { Err(error) },
//         };
//         let guard: &LockGuard = Held::guard(&held);
//         let outcome = Held::protect(&held, async move { let _ = &id; let _ = &user; { body } }).await;
//         Held::finish(held, outcome).await
//     };
//     match outcome {
//         Ok(value) => value,
//         Err(error) => FromLockError::from_lock_error(error),
//     }
//
// In a fn that waits on its thread, where it differs:
//     let held = match enter_blocking(options, manager) { … };
//     let guard: &LockGuard = Held::guard(&held.held);
//     let outcome = Held::run(&held.held, move || { let _ = &id; let _ = &user; { body } });
//     Blocking::finish(held, outcome)
fn run(lock: &Lock, body: &TokenStream, fail: &TokenStream) -> TokenStream {
    let site = Span::mixed_site();
    let (private, names) = (private(lock), names(lock));
    // The compiler takes an assignment to a variable moved into a closure for one to a copy, even though its destructor reads it.
    let allowed = lock.changes_arguments.then(|| quote_spanned!(site=> #[allow(unused_assignments)]));
    let (enter, run) = if lock.shape.is_blocking() {
        let run = quote_spanned! {site=>
            #allowed
            let __outcome = #private::Held::run(&__held.held, move || #body);
            #private::Blocking::finish(__held, __outcome)
        };
        (quote_spanned!(site=> #private::enter_blocking(__options, __manager)), run)
    } else {
        let run = quote_spanned! {site=>
            #allowed
            let __outcome = #private::Held::protect(&__held, async move #body).await;
            #private::Held::finish(__held, __outcome).await
        };
        (quote_spanned!(site=> #private::enter(__options, __manager).await), run)
    };
    quote_spanned! {site=>
        let __outcome = 'lock: {
            let __held = match #enter {
                #private::Ok(__held) => __held,
                // In braces: some attributes' parsers read `break 'lock ::path` as a loop label.
                #private::Err(__error) => break 'lock { #private::Err(__error) },
            };
            #names #run
        };
        match __outcome {
            #private::Ok(__value) => __value,
            // The option takes a closure, so the user could not write the closure's path instead.
            #[allow(clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
            #private::Err(__error) => #fail,
        }
    }
}

// Input:
//     fn f() -> T
//
// Output:
//     { use NoFuture as _; Returned::<T>::of().check(); Returned::<T>::of().check_within(); }
//
// A type that is not written out can't be named there.
fn returned(lock: &Lock) -> Option<TokenStream> {
    let output = lock.shape.output();
    let mut blank = FindBlank(false);
    blank.visit_type_mut(&mut output.clone());
    let is_named = !blank.0 && !matches!(output, Type::Never(_));
    let (private, span) = (private(lock), output.span().resolved_at(Span::mixed_site()));
    is_named.then(|| {
        quote_spanned! {span=>
            {
                #[allow(unused_imports)]
                use #private::NoFuture as _;
                #private::Returned::<#output>::of().check();
                #private::Returned::<#output>::of().check_within();
            }
        }
    })
}

/// A type with a part to infer, as in `Vec<_>`.
struct FindBlank(bool);

impl VisitMut for FindBlank {
    fn visit_type_infer_mut(&mut self, _: &mut TypeInfer) {
        self.0 = true;
    }
}

/// Moves every argument into the body as a whole. Otherwise an argument that the body does not mention, or the fields that it leaves in
/// another one, would be dropped after the release: a transaction would be rolled back without the lock.
///
/// The first one mentioned is dropped first. Arguments are dropped last to first, so the last one is mentioned first.
fn arguments(lock: &Lock) -> TokenStream {
    let site = Span::mixed_site();
    let arguments = lock.arguments.iter().rev().map(|Argument { name, conditions, is_unused, lints }| {
        // A new variable, so that the compiler still reports the argument as unused.
        let variable = if *is_unused { name.to_token_stream() } else { quote_spanned!(site=> _) };
        quote_spanned! {site=>
            #(#conditions)*
            #(#lints)*
            // An argument that exists only to be dropped late may well be called `_transaction`.
            #[allow(clippy::used_underscore_binding)]
            let #variable = &#name;
        }
    });
    arguments.collect()
}

/// The variables of `guard` and `fenced`.
fn names(lock: &Lock) -> TokenStream {
    let site = Span::mixed_site();
    let (runtime, private) = (&lock.runtime, private(lock));
    let held =
        if lock.shape.is_blocking() { quote_spanned!(site=> __held.held) } else { quote_spanned!(site=> __held) };
    let guard = lock
        .guard
        .as_ref()
        .map(|name| quote_spanned!(site=> let #name: &#runtime::LockGuard = #private::Held::guard(&#held);));
    let fenced = lock.fenced.as_ref().map(|name| {
        if matches!(lock.key, Key::Several(_)) {
            return quote_spanned! {site=>
                let #name: #private::std::vec::Vec<#runtime::FencingToken> = #private::Held::fencing_tokens(&#held);
            };
        }
        quote_spanned!(site=> let #name: #runtime::FencingToken = #private::Held::fencing_token(&#held);)
    });
    quote!(#guard #fenced)
}

/// The value returned when the lock failed; `__error` is bound by the `match`.
fn fail(lock: &Lock) -> TokenStream {
    let site = Span::mixed_site();
    let private = private(lock);
    match &lock.on_fail {
        OnFail::FromLockError => {
            let output = lock.shape.output();
            let span = output.span().resolved_at(site);
            quote_spanned!(span=> <#output as #private::FromLockError>::from_lock_error(__error))
        }
        // In parentheses: `{ a } - b` and `match a { … } - b` would be two statements here.
        OnFail::Value(value) => {
            let span = value.span().resolved_at(site);
            let value = quote_spanned!(span=> (#value));
            quote_spanned! {site=> {
                let _ = __error;
                #value
            }}
        }
        OnFail::Closure(closure) => {
            // The type makes the compiler report a mismatch in the closure.
            let output = match lock.shape.output() {
                Type::Never(_) => None,
                output => Some(quote_spanned!(site=> ::<#output>)),
            };
            quote_spanned!(site=> #private::on_fail #output(__error, #closure))
        }
    }
}

// Input:
//     { body }
//
// Output:
//     {
//         let _ = &id;
//         if let Some(__never) = None::<T> {
//             return __never;
//         }
//         { body }
//     }
//
// With this, `?` and an early `return` know the type, and a mismatch is reported in the user's code.
fn under_lock(lock: &Lock, brace: token::Brace, body: &TokenStream) -> TokenStream {
    let (private, site) = (private(lock), Span::mixed_site());
    let (arguments, output) = (arguments(lock), lock.shape.output());
    let is_named = !matches!(output, Type::Infer(_) | Type::Never(_));
    let typed = is_named.then(|| {
        let span = output.span().resolved_at(site);
        quote_spanned! {span=>
            #[allow(unreachable_code)]
            if let #private::Some(__never) = #private::None::<#output> {
                return __never;
            }
        }
    });
    // It allows nothing, but below an attribute no lint calls the braces around a single expression unnecessary.
    let attribute = quote_spanned!(site=> #![allow()]);
    let body = in_braces(brace, &quote!(#attribute #body));
    in_braces(brace, &quote!(#arguments #typed #body))
}

// Input:
//     fn f() -> impl Future<Output = T> { work_before(); future }
//
// Output (as the body that runs under the lock):
//     { let _ = &id; start::<T, _>(move || { work_before(); future }).await }
fn started(lock: &Lock, future: &Type, brace: token::Brace, body: &TokenStream) -> TokenStream {
    let (private, site) = (private(lock), Span::mixed_site());
    let (arguments, output, body) = (arguments(lock), lock.shape.output(), in_braces(brace, body));
    let started = quote_spanned!(site=> #private::start::<#output, #future>(move || #body).await);
    in_braces(brace, &quote!(#arguments #started))
}

fn boxed(lock: &Lock, future: &TokenStream) -> TokenStream {
    let private = private(lock);
    let site = Span::mixed_site();
    quote_spanned!(site=> #private::std::boxed::Box::pin(#future))
}

/// `#[async_trait]` gives the body `self` under the name `__self`; `self::path` is something else.
fn with_renamed_self(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut renamed = TokenStream::new();
    while let Some(token) = tokens.next() {
        renamed.extend([match token {
            TokenTree::Ident(name) if name == "self" && !starts_a_path(tokens.peek()) => {
                TokenTree::Ident(Ident::new("__self", name.span()))
            }
            TokenTree::Group(group) => {
                let mut inside = Group::new(group.delimiter(), with_renamed_self(group.stream()));
                inside.set_span(group.span());
                TokenTree::Group(inside)
            }
            other => other,
        }]);
    }
    renamed
}

fn starts_a_path(next: Option<&TokenTree>) -> bool {
    matches!(next, Some(TokenTree::Punct(colon)) if colon.as_char() == ':' && colon.spacing() == Spacing::Joint)
}

fn private(lock: &Lock) -> TokenStream {
    let runtime = &lock.runtime;
    let site = Span::mixed_site();
    quote_spanned!(site=> #runtime::__private)
}
