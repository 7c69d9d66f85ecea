//! The variables that a fn's argument introduces.

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{FnArg, Ident, Pat, PatIdent, ReceiverKind, Token};

/// The variables of one argument: none for `self` and `_`, one for `id` and `Path(id)`, several for `(a, b)`.
pub(in crate::cache_lock) fn bindings(argument: &FnArg) -> Vec<Ident> {
    match argument {
        FnArg::Receiver(_) => Vec::new(),
        FnArg::Typed(typed) => bindings_of_pattern(&typed.pat),
    }
}

/// The variables of all arguments, `self` included when it is taken by value.
pub(super) fn variables(arguments: &Punctuated<FnArg, Token![,]>) -> Vec<Ident> {
    let variables = arguments.iter().flat_map(|argument| match argument {
        FnArg::Receiver(receiver) if !matches!(receiver.kind, ReceiverKind::Reference(..)) => {
            vec![Ident::from(receiver.self_token)]
        }
        argument => bindings(argument),
    });
    variables.collect()
}

pub(super) fn bindings_of_pattern(pattern: &Pat) -> Vec<Ident> {
    let mut bindings = Bindings(Vec::new());
    bindings.visit_pat_mut(&mut pattern.clone());
    bindings.0
}

/// Whether the tokens may use the variable. A field, a method, a part of a path or a new variable of that name does not count.
pub(super) fn mentions(tokens: TokenStream, variable: &Ident) -> bool {
    let name = variable.to_string();
    let in_text = [format!("{{{name}}}"), format!("{{{name}:"), format!("{name}$")];
    let (mut before, mut tokens) = (String::new(), tokens.into_iter().peekable());
    while let Some(token) = tokens.next() {
        let is_mention = match &token {
            TokenTree::Group(group) => mentions(group.stream(), variable),
            TokenTree::Ident(ident) => {
                let is_member = before.ends_with(['.', '\'']) && !before.ends_with("..") || before.ends_with("::");
                // `id::f()`, `Order { id: 7 }` and `let id: u64`.
                let is_before_colon = matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                ident == variable && !is_member && !is_before_colon
            }
            // `format!("{name}")`
            TokenTree::Literal(literal) => {
                let literal = literal.to_string();
                in_text.iter().any(|mention| literal.contains(mention))
            }
            TokenTree::Punct(_) => false,
        };
        if is_mention {
            return true;
        }
        match token {
            TokenTree::Punct(punct) => before.push(punct.as_char()),
            _ => before.clear(),
        }
    }
    false
}

struct Bindings(Vec<Ident>);

impl VisitMut for Bindings {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        self.0.push(pattern.ident.clone());
        syn::visit_mut::visit_pat_ident_mut(self, pattern);
    }
}
