//! Calls that a provided method makes to its own trait. The proxy forwards a call of a provided method, so the implementation makes these
//! calls, and none of them takes a lock.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Ident;

use crate::cache_lock::parse::{Interface, Member};
use crate::mistakes::Mistakes;

/// A locked method that a provided one calls on `self` would silently run without its lock.
pub(super) fn check(interface: &Interface, mistakes: &mut Mistakes) {
    let methods = || {
        interface.members.iter().filter_map(|member| match member {
            Member::Method(method) => Some(method),
            _ => None,
        })
    };
    let locked: Vec<&Ident> =
        methods().filter(|method| method.lock.is_some()).map(|method| &method.signature.ident).collect();
    let of_trait = interface.name();
    for method in methods() {
        for call in calls(method.body.clone(), &locked) {
            mistakes.at(
                &call,
                format!(
                    "`{call}` would run without its lock here, since the proxy leaves a provided method to the implementation: write \
                     `{}` as a fn beside the trait that takes `&impl {of_trait}`, or call a method that is not locked",
                    method.signature.ident
                ),
            );
        }
    }
}

/// The names in `self.buy(…)`, `Self::buy(…)` and `Shop::buy(self, …)`, also inside macros. Other names for `self` are not found.
fn calls(tokens: TokenStream, locked: &[&Ident]) -> Vec<Ident> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => found.extend(calls(group.stream(), locked)),
            TokenTree::Ident(name) if locked.contains(&name) => {
                let before: Vec<String> = tokens.iter().take(at).rev().take(3).map(ToString::to_string).collect();
                let before: Vec<&str> = before.iter().map(String::as_str).collect();
                let is_of_self = match before[..] {
                    // `#[async_trait]` renames `self`.
                    [".", "self" | "__self", ..] | [":", ":", "Self"] => true,
                    [":", ":", ..] => takes_self(tokens.get(at + 1..).unwrap_or_default()),
                    _ => false,
                };
                if is_of_self {
                    found.push(name.clone());
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether it begins with `(self, …)`, with or without a turbofish.
fn takes_self(behind_name: &[TokenTree]) -> bool {
    let is_turbofish = matches!(behind_name.first(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let arguments = behind_name.iter().take(if is_turbofish { usize::MAX } else { 1 }).find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    });
    let mut arguments = arguments.into_iter().flatten().map(|token| token.to_string());
    arguments.find(|token| token != "&" && token != "mut").is_some_and(|first| first == "self" || first == "__self")
}
