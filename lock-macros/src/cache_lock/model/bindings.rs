//! The variables that a fn's argument introduces.

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

struct Bindings(Vec<Ident>);

impl VisitMut for Bindings {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        self.0.push(pattern.ident.clone());
        syn::visit_mut::visit_pat_ident_mut(self, pattern);
    }
}
