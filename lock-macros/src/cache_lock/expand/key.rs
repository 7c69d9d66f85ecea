use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;

use crate::cache_lock::model::{Key, Keys};

/// The largest tuple that implements the runtime's `LockKey`.
const TUPLE_PARTS: usize = 12;

// Input:
//     (user, order.id)
//
// Output:
//     &(&(user), &(order.id),)
pub(super) fn key(key: &Key) -> TokenStream {
    match key {
        Key::One(place) => borrowed(place),
        Key::Tuple(parts, span) => {
            let parts: Vec<_> = parts.iter().map(self::key).collect();
            tuple(&parts, span.resolved_at(Span::mixed_site()))
        }
        // The model makes no list of lists.
        Key::Several(_) => TokenStream::new(),
    }
}

// Input:
//     [from, order.to]
//     self.ids
//
// Output:
//     LockOptions::all(prefix, [&(from), &(order.to)])
//     { use IntoIterator as _; LockOptions::all(prefix, (&(self.ids)).into_iter()) }
//
// `into_iter` works for `ids: &[Id]` and `ids: Vec<Id>` alike. The braces are around the whole call, so that temporaries in a place such as
// `self.order().ids` live long enough.
pub(super) fn options_of_all(keys: &Keys, prefix: &TokenStream, private: &TokenStream) -> TokenStream {
    let all = |keys: TokenStream| {
        let span = keys.span().resolved_at(Span::mixed_site());
        // In angles, so that the call has the span of the keys, and an error about a wrong key points there.
        quote_spanned!(span=> <#private::LockOptions>::all(#prefix, #keys))
    };
    match keys {
        Keys::Listed(keys, span) => {
            let keys = keys.iter().map(key);
            let span = span.resolved_at(Span::mixed_site());
            all(quote_spanned!(span=> [#(#keys),*]))
        }
        Keys::Place(place) => {
            let span = place.span().resolved_at(Span::mixed_site());
            let place = borrowed(place);
            let all = all(quote_spanned!(span=> (#place).into_iter()));
            quote_spanned! {span=> {
                use #private::core::iter::IntoIterator as _;
                #all
            }}
        }
        Keys::Iterator(argument) => all(argument.to_token_stream()),
        Keys::Value(value) => all(value.clone()),
    }
}

/// Parts beyond the largest tuple go into a tuple in its last place; the lock's name stays the same.
fn tuple(parts: &[TokenStream], span: Span) -> TokenStream {
    match parts.split_at_checked(TUPLE_PARTS - 1) {
        Some((first, rest)) if rest.len() > 1 => {
            let rest = tuple(rest, span);
            quote_spanned!(span=> &(#(#first,)* #rest))
        }
        _ => quote_spanned!(span=> &(#(#parts,)*)),
    }
}

pub(super) fn borrowed(place: &TokenStream) -> TokenStream {
    let span = place.span().resolved_at(Span::mixed_site());
    quote_spanned!(span=> &(#place))
}
