//! What the options of a trait's method can't use: there is no body, and no type with fields.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, Ident, Pat};

use super::super::bindings::{bindings, mentions};
use crate::cache_lock::parse::{Method, Written};
use crate::mistakes::Mistakes;

/// Returns the options without those that are mistakes.
pub(super) fn check_options(
    written: Vec<Written>,
    method: &Method,
    proxy: Option<&Ident>,
    mistakes: &mut Mistakes,
) -> Vec<Written> {
    let mut kept = Vec::new();
    for option in written {
        if option.name == "guard" || option.name == "fenced" {
            let name = &option.name;
            mistakes.at(
                name,
                format!(
                    "`{name}` binds a name in a body, and a proxy has none: put `#[cache_lock({name} = …)]` on the fn that \
                     implements this method"
                ),
            );
            continue;
        }
        if let Some(value) = &option.value {
            check_names_no_field(&option.name, value.to_token_stream(), proxy, mistakes);
            check_names_whole_arguments(&value.to_token_stream(), method, mistakes);
        }
        kept.push(option);
    }
    for mark in &method.marks {
        if let Some(FnArg::Receiver(receiver)) = method.signature.inputs.get(mark.argument) {
            mistakes.at(
                &mark.attribute,
                format!(
                    "the trait knows no fields of `{0}`: write `key = {0}.id()`, with a method of the trait",
                    receiver.self_token.to_token_stream()
                ),
            );
        }
    }
    kept
}

/// `self.locks` is a field of some implementation; `self.locks()` is a method of the trait.
fn check_names_no_field(option: &Ident, value: TokenStream, proxy: Option<&Ident>, mistakes: &mut Mistakes) {
    let tokens: Vec<TokenTree> = value.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            check_names_no_field(option, group.stream(), proxy, mistakes);
        }
        let Some([TokenTree::Ident(this), TokenTree::Punct(dot), field]) = tokens.get(at..at + 3) else { continue };
        let is_call = match tokens.get(at + 3) {
            Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
            // `self.id::<u64>()`
            Some(TokenTree::Punct(punct)) => punct.as_char() == ':',
            _ => false,
        };
        if this != "self" || dot.as_char() != '.' || is_call || matches!(field, TokenTree::Punct(_)) {
            continue;
        }
        let instead = match proxy {
            Some(proxy) if option == "manager" => {
                format!(
                    "make the proxy with its manager, `{proxy}::with_manager(shop, locks)`, and leave `manager` out"
                )
            }
            _ => format!("write `self.{field}()`, with a method of the trait"),
        };
        mistakes.at(field, format!("the trait knows no field `{field}`: {instead}"));
    }
}

/// The proxy forwards an argument as a whole, so it does not destructure it.
fn check_names_whole_arguments(value: &TokenStream, method: &Method, mistakes: &mut Mistakes) {
    for argument in &method.signature.inputs {
        if matches!(argument, FnArg::Typed(typed) if matches!(*typed.pat, Pat::Ident(_))) {
            continue;
        }
        for part in bindings(argument) {
            if mentions(value.clone(), &part) {
                mistakes.at(
                    &part,
                    format!("the proxy passes this argument on as a whole: give it a name, and write the path to `{part}` in the option"),
                );
            }
        }
    }
}
