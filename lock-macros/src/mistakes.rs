//! [`Mistakes`]: all that is wrong with one use of a macro, reported at once.

use proc_macro2::TokenStream;
use quote::ToTokens;

/// The mistakes found so far. A check adds to it and goes on, so the user sees all of them in one build.
#[derive(Default)]
pub(crate) struct Mistakes {
    found: Option<syn::Error>,
}

impl Mistakes {
    /// Adds a mistake at `tokens`; `advice` says what to write instead.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, advice: impl std::fmt::Display) {
        self.add(syn::Error::new_spanned(tokens, advice));
    }

    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.found {
            Some(found) => found.combine(mistake),
            None => self.found = Some(mistake),
        }
    }

    /// The value, or `None` after adding the mistake.
    pub(crate) fn ok<T>(&mut self, outcome: syn::Result<T>) -> Option<T> {
        outcome.map_err(|mistake| self.add(mistake)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_none()
    }

    /// One `compile_error!` per mistake.
    pub(crate) fn into_compile_errors(self) -> TokenStream {
        self.found.map(|found| found.to_compile_error()).unwrap_or_default()
    }
}
