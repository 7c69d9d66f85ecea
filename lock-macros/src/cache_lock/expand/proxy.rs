//! A trait's proxy.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, GenericParam, Meta, PathSegment, Token, TraitBound, TraitItemConst, TraitItemType, Type, TypeParam,
    TypeParamBound, WherePredicate, parse_quote,
};

use super::expand;
use crate::any_token;
use crate::cache_lock::model::{InPlaceOfSelf, Proxy, ProxyMember, is_self};
use crate::cache_lock::parse::Interface;

// Input:
//     #[cache_lock(proxy = LockedShop)]
//     pub trait Shop: Named {
//         type Item;
//         #[cache_lock(prefix = "shop", key = id)]
//         async fn buy(&self, id: u64) -> Result<Self::Item, ShopError>;
//         async fn stock(&self, id: u64) -> u64;
//     }
//
// Output, next to the trait:
//     pub struct LockedShop<T> { inner: T, manager: Option<LockManager> }
//
//     impl<T> LockedShop<T> { pub fn new(__inner: T) -> Self { … } … }
//
//     impl<T> Shop for LockedShop<T> where T: Shop, Self: Named {
//         type Item = <T as Shop>::Item;
//         async fn buy(&self, id: u64) -> Result<Self::Item, ShopError> {
//             … the lock, around `<T as Shop>::buy(&self.inner, id).await` …
//         }
//         async fn stock(&self, id: u64) -> u64 {
//             <T as Shop>::stock(&self.inner, id).await
//         }
//     }
pub(in crate::cache_lock) fn proxy(proxy: &Proxy, interface: &Interface) -> TokenStream {
    let definition = structure(proxy, interface);
    let implementation = proxy.is_whole.then(|| implementation(proxy, interface));
    quote!(#definition #implementation)
}

/// The type, how it is made, and how it is taken apart.
fn structure(proxy: &Proxy, interface: &Interface) -> TokenStream {
    let site = Span::mixed_site();
    let Proxy { runtime, name, sharing, .. } = proxy;
    let (of_trait, visibility) = (interface.name(), &interface.definition.vis);
    let private = quote_spanned!(site=> #runtime::__private);
    let (docs, conditions) = (attributes(interface, "doc"), conditions(&interface.definition.attrs));
    let title =
        format!("[`{of_trait}`] with its locks: each locked method holds its lock while the implementation runs.");
    let (field, new, inside, constness) = match sharing {
        None => {
            let (new, inside) = (quote_spanned!(site=> __inner), quote_spanned!(site=> self.inner));
            (quote!(T), new, inside, Some(quote!(const)))
        }
        Some(sharing) => {
            let pointer = sharing.pointer(runtime);
            let inside = quote_spanned!(site=> #private::unshared(#pointer::try_unwrap(self.inner)));
            (quote_spanned!(site=> #pointer<T>), quote_spanned!(site=> #pointer::new(__inner)), inside, None)
        }
    };
    let panics = sharing.as_ref().map(|_| {
        quote! {
            ///
            /// # Panics
            ///
            /// While anybody else has the implementation: a method that takes an `Arc` or `Rc` of it may have kept that.
        }
    });
    quote_spanned! {site=>
        #(#conditions)*
        #[doc = #title]
        ///
        #(#docs)*
        #[derive(#private::core::clone::Clone, #private::core::fmt::Debug)]
        #visibility struct #name<T> {
            inner: #field,
            manager: #private::core::option::Option<#runtime::LockManager>,
        }

        #(#conditions)*
        #[allow(dead_code)]
        impl<T> #name<T> {
            /// Puts the locks around an implementation. They come from the manager of the enclosing `LockManager::scope`, else from
            /// the installed manager.
            #[must_use]
            #visibility #constness fn new(__inner: T) -> Self {
                Self { inner: #new, manager: #private::None }
            }

            /// Puts the locks of this manager around an implementation.
            #[must_use]
            #visibility fn with_manager(__inner: T, __manager: #runtime::LockManager) -> Self {
                Self { inner: #new, manager: #private::Some(__manager) }
            }

            /// The implementation, without locks.
            #[must_use]
            #visibility fn inner(&self) -> &T {
                &self.inner
            }

            /// Gives the implementation back.
            #panics
            #[must_use]
            #visibility fn into_inner(self) -> T {
                #inside
            }
        }
    }
}

fn attributes<'a>(interface: &'a Interface, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    interface.definition.attrs.iter().filter(move |attribute| attribute.path().is_ident(name))
}

/// The `cfg` attributes: the proxy exists only where the trait does.
fn conditions(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg") && matches!(attribute.meta, Meta::List(_)))
        .collect()
}

fn implementation(proxy: &Proxy, interface: &Interface) -> TokenStream {
    let site = Span::mixed_site();
    let Proxy { name, inner, bounds, clauses: own, .. } = proxy;
    let (definition, of_trait) = (&interface.definition, interface.path());
    let allowed = attributes(interface, "allow");
    let conditions = conditions(&definition.attrs);
    let mut generics = definition.generics.clone();
    let of_inner = clauses_of_inner(proxy, interface);
    generics.params.push(GenericParam::Type(parse_quote!(#inner)));
    let clauses = &mut generics.make_where_clause().predicates;
    clauses.push(parse_quote!(#inner: #of_trait #(+ #bounds)*));
    clauses.extend(of_inner);
    clauses.extend(own.iter().cloned());
    if !definition.supertraits.is_empty() {
        let supertraits = &definition.supertraits;
        clauses.push(parse_quote!(Self: #supertraits));
    }
    OfImplementation { proxy, interface }.visit_generics_mut(&mut generics);
    let (generics, _, clause) = generics.split_for_impl();
    let unsafety = &definition.unsafety;
    let members = proxy.members.iter().map(|member| match member {
        ProxyMember::Method(function, Some(lock)) => expand(lock, function),
        ProxyMember::Method(function, None) => function.to_token_stream(),
        ProxyMember::Type(associated) => same_type(associated, proxy, interface),
        ProxyMember::Const(constant) => same_constant(constant, proxy, interface),
    });
    quote_spanned! {site=>
        #(#conditions)*
        #(#allowed)*
        #[allow(deprecated, clippy::future_not_send, clippy::used_underscore_binding)]
        #unsafety impl #generics #of_trait for #name<#inner> #clause {
            #(#members)*
        }
    }
}

// Input:
//     trait Shop<U: From<Self>> where Vec<Self>: Clone { type Next: From<Self>; }
//
// Output:
//     U: From<T>, Vec<T>: Clone, <T as Shop<U>>::Next: From<Self>
//
// From a bound on the trait the compiler infers the bounds on `Self` itself, and no others.
fn clauses_of_inner(proxy: &Proxy, interface: &Interface) -> Vec<WherePredicate> {
    let (inner, of_trait) = (&proxy.inner, interface.path());
    let mut generics = interface.definition.generics.clone();
    OfImplementation { proxy, interface }.visit_generics_mut(&mut generics);
    let of_parameters = generics.type_params().filter(|parameter| !parameter.bounds.is_empty()).map(|parameter| {
        let TypeParam { ident, bounds, .. } = parameter;
        parse_quote!(#ident: #bounds)
    });
    let of_clause = generics.where_clause.iter().flat_map(|clause| clause.predicates.iter().cloned());
    let is_of_self =
        |predicate: &WherePredicate| matches!(predicate, WherePredicate::Type(of) if is_self(&of.bounded_ty));
    let of_inner = of_parameters.chain(of_clause).filter(|predicate| !is_of_self(predicate) && has_self(predicate));
    let of_inner = of_inner.map(|mut predicate| {
        InPlaceOfSelf(inner).visit_where_predicate_mut(&mut predicate);
        predicate
    });
    let of_types = proxy.members.iter().filter_map(|member| match member {
        ProxyMember::Type(TraitItemType { ident, generics, bounds, .. })
            if generics.params.is_empty() && has_self(bounds) =>
        {
            // `?Sized` is allowed only where the type is declared.
            let is_asked =
                |bound: &&TypeParamBound| !matches!(bound, TypeParamBound::Trait(TraitBound { maybe: Some(_), .. }));
            let bounds = bounds.iter().filter(is_asked);
            Some(parse_quote!(<#inner as #of_trait>::#ident: #(#bounds)+*))
        }
        _ => None,
    });
    of_inner.chain(of_types).collect()
}

fn has_self(tokens: &impl ToTokens) -> bool {
    any_token(tokens.to_token_stream(), &|token| token.to_string() == "Self")
}

/// Writes `<T as Shop>::Item` for `Self::Item`: the proxy's own item is known only once these bounds hold.
struct OfImplementation<'a> {
    proxy: &'a Proxy,
    interface: &'a Interface,
}

impl VisitMut for OfImplementation<'_> {
    fn visit_type_mut(&mut self, node: &mut Type) {
        syn::visit_mut::visit_type_mut(self, node);
        let Type::Path(path) = node else { return };
        let mut segments = path.path.segments.iter();
        let is_of_self = path.qself.is_none() && segments.next().is_some_and(|first| first.ident == "Self");
        let rest: Punctuated<&PathSegment, Token![::]> = segments.collect();
        let name = rest.first().map(|item| &item.ident);
        let is_named = |member: &ProxyMember| matches!(member, ProxyMember::Type(own) if name == Some(&own.ident));
        if is_of_self && self.proxy.members.iter().any(is_named) {
            let (of_trait, inner) = (self.interface.path(), &self.proxy.inner);
            *node = parse_quote!(<#inner as #of_trait>::#rest);
        }
    }
}

// `type Item<'a> where Self: 'a = <T as Shop>::Item<'a>`
fn same_type(associated: &TraitItemType, proxy: &Proxy, interface: &Interface) -> TokenStream {
    let (of_trait, inner) = (interface.path(), &proxy.inner);
    let TraitItemType { attrs, ident, generics, .. } = associated;
    let conditions = conditions(attrs);
    let (parameters, arguments, clause) = generics.split_for_impl();
    quote!(#(#conditions)* type #ident #parameters = <#inner as #of_trait>::#ident #arguments #clause;)
}

fn same_constant(constant: &TraitItemConst, proxy: &Proxy, interface: &Interface) -> TokenStream {
    let (of_trait, inner) = (interface.path(), &proxy.inner);
    let TraitItemConst { attrs, ident, ty, .. } = constant;
    let conditions = conditions(attrs);
    quote!(#(#conditions)* const #ident: #ty = <#inner as #of_trait>::#ident;)
}
