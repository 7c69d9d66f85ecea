use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::ext::IdentExt;
use syn::parse_quote_spanned;
use syn::spanned::Spanned;

use super::model::{Alternative, Keyed};
use super::parse::{Item, PartOfKey};
use crate::in_one_piece;

// Input:
//     enum Room { Lobby, Seat { #[lock_key] row: u32, price: u64 } }
//
// Output:
//     impl LockKey for Room {
//         fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
//             match self {
//                 Self::Lobby { .. } => {
//                     name.part("Lobby")?;
//                 }
//                 Self::Seat { row: part0, .. } => {
//                     name.part("Seat")?;
//                     <u32 as LockKey>::write_parts(part0, name)?;
//                 }
//             }
//             Ok(())
//         }
//     }
pub(super) fn expand(keyed: &Keyed<'_>, item: &Item) -> TokenStream {
    let site = Span::mixed_site();
    let runtime = &keyed.runtime;
    let type_name = &item.name;
    let mut generics = item.generics.clone();
    for (bound, part) in &keyed.bounds {
        let span = bound.span().resolved_at(site);
        let predicate = match part {
            PartOfKey::Itself => parse_quote_spanned!(span=> #bound: #runtime::LockKey),
            PartOfKey::Text => parse_quote_spanned!(span=> #bound: #runtime::__private::core::fmt::Display),
        };
        generics.make_where_clause().predicates.push(predicate);
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let body = if keyed.alternatives.is_empty() {
        // A union, or an enum without variants: an error is emitted, too.
        quote_spanned!(site=> let _ = __name;)
    } else {
        let arms = keyed.alternatives.iter().map(|alternative| arm(keyed, alternative));
        quote_spanned!(site=> match self { #(#arms)* })
    };
    quote_spanned! {site=>
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #runtime::LockKey for #type_name #type_generics #where_clause {
            fn write_parts(
                &self,
                __name: &mut #runtime::NameParts,
            ) -> #runtime::__private::KeyResult {
                #body
                #runtime::__private::Ok(())
            }
        }
    }
}

/// The variant's name is the first part, so no two variants write the same parts.
fn arm(keyed: &Keyed<'_>, alternative: &Alternative<'_>) -> TokenStream {
    let site = Span::mixed_site();
    let runtime = &keyed.runtime;
    let path = alternative.variant.map(|variant| quote_spanned!(site=> ::#variant));
    let variant_part = alternative.variant.map(|variant| {
        let text = variant.unraw().to_string();
        quote_spanned!(site=> #runtime::NameParts::part(__name, #text)?;)
    });
    let bindings = (alternative.fields.iter().enumerate()).map(|(i, field)| {
        let (member, binding) = (&field.member, format_ident!("__part{i}", span = site));
        quote_spanned!(site=> #member: #binding,)
    });
    let field_parts = (alternative.fields.iter().enumerate()).map(|(i, field)| {
        let (ty, binding) = (in_one_piece(field.ty.clone()), format_ident!("__part{i}", span = site));
        let span = ty.span().resolved_at(site);
        match field.part() {
            PartOfKey::Itself => quote_spanned!(span=> <#ty as #runtime::LockKey>::write_parts(#binding, __name)?;),
            PartOfKey::Text => quote_spanned!(span=> #runtime::__private::displayed::<#ty>(#binding, __name)?;),
        }
    });
    quote_spanned! {site=>
        Self #path { #(#bindings)* .. } => {
            #variant_part
            #(#field_parts)*
        }
    }
}
