//! Every input gets an answer, and always the same one: an expansion that is Rust, or a readable error next to the unchanged item. When a
//! macro panics, the compiler's own error is of no help.
//!
//! `PROPTEST_CASES=200000 cargo test --release -p lock-macros random_input` searches longer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proc_macro2::{Span, TokenStream, TokenTree};
use proptest::prelude::*;
use proptest::sample::Index;
use quote::{ToTokens, quote};
use syn::visit_mut::VisitMut;
use syn::{Attribute, CapturedParam, Expr, FnArg, Ident, ImplItemFn, Item, ItemImpl, ItemTrait, Signature, TraitItem};

use crate::{cache_lock, lock_key};

mod corpus;
mod options;
mod tokens;
mod traits;

/// Splits an expansion into the tokens before the errors, and the errors' messages.
fn split(expansion: TokenStream) -> (TokenStream, Vec<String>) {
    let tokens: Vec<TokenTree> = expansion.into_iter().collect();
    let is_error = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "compile_error");
    // `::core::compile_error! { … }` has five tokens before the macro's name.
    let first = tokens.iter().position(is_error).map_or(tokens.len(), |at| at - 5);
    let message = |error: &[TokenTree]| {
        let Some(TokenTree::Group(group)) = error.last() else { unreachable!("it has a message") };
        syn::parse2::<syn::LitStr>(group.stream()).unwrap().value()
    };
    let messages = tokens[first..].chunks(8).map(message).collect();
    (tokens.into_iter().take(first).collect(), messages)
}

fn without_marks(mut function: ImplItemFn) -> ImplItemFn {
    for input in &mut function.sig.inputs {
        let (FnArg::Receiver(syn::Receiver { attrs, .. }) | FnArg::Typed(syn::PatType { attrs, .. })) = input;
        attrs.retain(|a| !a.path().is_ident("locked_object") && !a.path().is_ident("locked_complex_object"));
    }
    function
}

fn head(mut function: ImplItemFn) -> String {
    // Inner attributes are written inside the braces.
    function.attrs.retain(|attribute| matches!(attribute.style, syn::AttrStyle::Outer));
    function.block = syn::parse_quote!({});
    // The attributes of an unused argument move into the body.
    for argument in &mut function.sig.inputs {
        if let FnArg::Typed(typed) = argument {
            typed.attrs.retain(|attribute| attribute.path().is_ident("cfg"));
        }
    }
    function.to_token_stream().to_string()
}

fn check_attribute(options: &TokenStream, item: &TokenStream) -> Result<(), TestCaseError> {
    let expansion = cache_lock::expansion(options.clone(), item.clone());
    let again = cache_lock::expansion(options.clone(), item.clone());
    prop_assert_eq!(expansion.to_string(), again.to_string());
    let (kept, told) = split(expansion);
    prop_assert!(told.iter().all(|message| !message.is_empty()));
    if let Ok(interface) = syn::parse2::<ItemTrait>(item.clone()) {
        return check_interface(kept, &told, interface);
    }
    if syn::parse2::<ItemImpl>(item.clone()).is_ok() {
        prop_assert_eq!(syn::parse2::<ItemImpl>(kept)?.items.len(), syn::parse2::<ItemImpl>(item.clone())?.items.len());
        return Ok(());
    }
    // The compiler parses the item, its body too, before the attribute sees it.
    let Ok(function) = syn::parse2::<ImplItemFn>(item.clone()) else {
        return Ok(());
    };
    let function = without_marks(function);
    let kept: ImplItemFn = syn::parse2(kept)?;
    if told.is_empty() {
        prop_assert_eq!(head(kept), head(function));
    } else {
        let function = quote!(#[allow(unused_variables)] #function);
        prop_assert_eq!(kept.to_token_stream().to_string(), function.to_string());
    }
    Ok(())
}

/// The trait is unchanged, and its proxy has every member of the trait.
fn check_interface(kept: TokenStream, told: &[String], mut interface: ItemTrait) -> Result<(), TestCaseError> {
    let comes_first = |attribute: &Attribute| {
        let is_send = attribute.meta.to_token_stream().to_string().ends_with("make (Send)");
        is_send || attribute.path().segments.last().unwrap().ident == "async_trait"
    };
    if interface.attrs.iter().any(comes_first) {
        // The attribute moves below, and everything else is expanded later.
        interface.attrs.clear();
        let mut moved: ItemTrait = syn::parse2(kept)?;
        moved.attrs.clear();
        prop_assert_eq!(moved.to_token_stream().to_string(), interface.to_token_stream().to_string());
        return Ok(());
    }
    for member in &mut interface.items {
        if let TraitItem::Fn(method) = member {
            *method = without_marks_of_trait(method.clone());
        }
    }
    let items = syn::parse2::<syn::File>(kept)?.items;
    let Item::Trait(theirs) = &items[0] else { return Err(TestCaseError::fail("no trait")) };
    prop_assert_eq!(without_locks(theirs.clone()), without_locks(interface.clone()));
    if told.is_empty() {
        let Some(Item::Impl(proxy)) = items.last() else { return Err(TestCaseError::fail("no proxy")) };
        prop_assert_eq!(proxy.items.len(), interface.items.len());
        for (ours, theirs) in proxy.items.iter().zip(&interface.items) {
            if let (syn::ImplItem::Fn(ours), TraitItem::Fn(theirs)) = (ours, theirs) {
                let mut expected = theirs.sig.clone();
                Capturing(proxy.generics.type_params().last().unwrap().ident.clone())
                    .visit_signature_mut(&mut expected);
                prop_assert_eq!(without_patterns(ours.sig.clone()), without_patterns(expected));
            }
        }
    }
    Ok(())
}

/// The trait without the attribute itself, and without one that may be under a condition, which is refused and removed.
fn without_locks(mut interface: ItemTrait) -> String {
    let is_lock = |attribute: &Attribute| {
        let may_hide = attribute.path().is_ident("cfg_attr");
        attribute.path().segments.last().unwrap().ident == "cache_lock"
            || may_hide && attribute.meta.to_token_stream().to_string().contains("cache_lock")
    };
    for member in &mut interface.items {
        if let TraitItem::Fn(syn::TraitItemFn { attrs, .. })
        | TraitItem::Type(syn::TraitItemType { attrs, .. })
        | TraitItem::Const(syn::TraitItemConst { attrs, .. }) = member
        {
            attrs.retain(|attribute| !is_lock(attribute));
        }
    }
    interface.to_token_stream().to_string()
}

/// A proxy captures the implementation where its trait captures `Self`.
struct Capturing(Ident);

impl VisitMut for Capturing {
    fn visit_captured_param_mut(&mut self, captured: &mut CapturedParam) {
        if matches!(captured, CapturedParam::Ident(name) if name == "Self") {
            *captured = CapturedParam::Ident(self.0.clone());
        }
    }
}

fn without_marks_of_trait(mut method: syn::TraitItemFn) -> syn::TraitItemFn {
    for input in &mut method.sig.inputs {
        let (FnArg::Receiver(syn::Receiver { attrs, .. }) | FnArg::Typed(syn::PatType { attrs, .. })) = input;
        attrs.retain(|a| !a.path().is_ident("locked_object") && !a.path().is_ident("locked_complex_object"));
    }
    method
}

fn without_patterns(mut signature: Signature) -> String {
    for input in &mut signature.inputs {
        match input {
            FnArg::Typed(argument) => *argument.pat = syn::parse_quote!(_),
            FnArg::Receiver(receiver) if !matches!(receiver.kind, syn::ReceiverKind::Reference(..)) => {
                receiver.mutability = None;
            }
            FnArg::Receiver(_) => {}
        }
    }
    signature.to_token_stream().to_string()
}

fn check_derive(item: &TokenStream) -> Result<(), TestCaseError> {
    let expansion = lock_key::expansion(item.clone());
    prop_assert_eq!(expansion.to_string(), lock_key::expansion(item.clone()).to_string());
    let (kept, told) = split(expansion);
    prop_assert!(told.iter().all(|message| !message.is_empty()));
    if let Ok(input) = syn::parse2::<syn::DeriveInput>(item.clone()) {
        // The compiler refuses `_` as the name of a type, but syn accepts it.
        if input.generics.type_params().all(|parameter| parameter.ident != "_") {
            syn::parse2::<syn::ItemImpl>(kept)?;
        }
    } else {
        prop_assert!(kept.is_empty() && !told.is_empty());
    }
    Ok(())
}

/// Collects every expression as text.
#[derive(Default)]
struct Expressions(Vec<String>);

impl VisitMut for Expressions {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        self.0.push(expression.to_token_stream().to_string());
        syn::visit_mut::visit_expr_mut(self, expression);
    }
}

fn valid_fn() -> TokenStream {
    "pub async fn buy<'a>(&self, id: u64, name: &'a str) -> Result<u64, ShopError> { self.pay(id).await }"
        .parse()
        .unwrap()
}

#[test]
fn each_use_of_other_tests_as_it_stands() {
    for corpus::Use { options, item } in corpus::uses() {
        check_attribute(&options, &item).unwrap_or_else(|error| panic!("{error}: {item}"));
        check_derive(&item).unwrap_or_else(|error| panic!("{error}: {item}"));
    }
}

/// A use from another test with one token changed per four bytes; and the bytes as Rust, with the options in the first line.
#[test]
fn fuzz_macro() {
    bolero::check!(name = "macro").for_each(|bytes: &[u8]| {
        if let Some(([first, second, in_options], changes)) = bytes.split_first_chunk() {
            let (in_options, in_item) =
                changes.as_chunks().0.split_at(usize::from(*in_options % 4).min(changes.len() / 4));
            let used = corpus::at(usize::from(u16::from_le_bytes([*first, *second])));
            let (options, item) = (corpus::edited(used.options, in_options), corpus::edited(used.item, in_item));
            check_attribute(&options, &item).unwrap();
            check_derive(&item).unwrap();
        }
        let text = String::from_utf8_lossy(bytes);
        let (options, item) = text.split_once('\n').unwrap_or((&text, ""));
        if let (Ok(options), Ok(item)) = (options.parse(), item.parse::<TokenStream>()) {
            check_attribute(&options, &if item.is_empty() { valid_fn() } else { item }).unwrap();
        }
    });
}

proptest! {
    #[test]
    fn any_tokens_as_options(words in tokens::words(30)) {
        check_attribute(&tokens::written(&words), &valid_fn())?;
    }

    #[test]
    fn the_options_with_mistakes(text in options::options()) {
        if let Ok(options) = text.parse() {
            check_attribute(&options, &valid_fn())?;
        }
    }

    #[test]
    fn any_trait((options, item) in traits::interface()) {
        if let (Ok(options), Ok(item)) = (options.parse(), item.parse()) {
            check_attribute(&options, &item)?;
        }
    }

    #[test]
    fn any_block((options, item) in traits::block()) {
        if let (Ok(options), Ok(item)) = (options.parse(), item.parse()) {
            check_attribute(&options, &item)?;
        }
    }

    #[test]
    fn any_value_of_an_option(text in options::option_after_a_key()) {
        if let Ok(options) = text.parse() {
            check_attribute(&options, &valid_fn())?;
        }
    }

    /// Next to the macro's own tokens, a value could become several expressions.
    #[test]
    fn an_accepted_value_stays_one_expression(name in prop_oneof![Just("on_fail"), Just("manager")], value in options::value()) {
        if let Ok(value) = syn::parse_str::<Expr>(&value)
            && let name = syn::Ident::new(name, Span::call_site())
            && let options = quote!(key = id, #name = #value)
            && let (kept, told) = split(cache_lock::expansion(options, valid_fn()))
            && told.is_empty()
        {
            let mut expressions = Expressions::default();
            expressions.visit_impl_item_fn_mut(&mut syn::parse2(kept)?);
            prop_assert!(expressions.0.contains(&value.to_token_stream().to_string()), "{:?}", expressions.0);
        }
    }

    #[test]
    fn any_tokens_as_item(words in tokens::words(40)) {
        let item = tokens::written(&words);
        check_attribute(&"key = id".parse().unwrap(), &item)?;
        check_derive(&item)?;
    }

    #[test]
    fn the_uses_of_other_tests_with_changes(
        options_of in any::<Index>(),
        item_of in any::<Index>(),
        with_own_options in prop::bool::weighted(0.8),
        in_options in corpus::changes(3),
        in_item in corpus::changes(4),
    ) {
        let item = corpus::pick(item_of);
        let options = if with_own_options { item.options } else { corpus::pick(options_of).options };
        let options = corpus::changed(options, &in_options);
        let item = corpus::changed(item.item, &in_item);
        check_attribute(&options, &item)?;
        check_derive(&item)?;
    }
}
