//! What the marks mean: every rule of the derive, one function each.

use proc_macro2::TokenTree;
use quote::ToTokens;
use syn::{Ident, Path, Type, parse_quote};

use super::parse::{Item, Part, PartOfKey, Shape};
use crate::any_token;
use crate::mistakes::Mistakes;

/// How a type becomes a key.
pub(super) struct Keyed<'a> {
    /// The path of the runtime.
    pub(super) runtime: Path,
    pub(super) alternatives: Vec<Alternative<'a>>,
    /// Field types that depend on the type's parameters: only their use decides whether they are keys, or have a text.
    pub(super) bounds: Vec<(Type, PartOfKey)>,
}

/// The struct, or one variant.
pub(super) struct Alternative<'a> {
    pub(super) variant: Option<&'a Ident>,
    pub(super) fields: Vec<&'a Part>,
}

pub(super) fn model<'a>(item: &'a Item, mistakes: &mut Mistakes) -> Keyed<'a> {
    let alternatives = match &item.shape {
        Shape::Struct(fields) => {
            check_not_empty(&item.name, fields, mistakes);
            vec![alternative(None, &item.name, fields, mistakes)]
        }
        Shape::Enum(variants) => {
            if variants.is_empty() {
                mistakes.at(&item.name, "an enum without variants has no value that could be a key");
            }
            let one = |variant: &'a super::parse::Variant| {
                alternative(Some(&variant.name), &variant.name, &variant.fields, mistakes)
            };
            variants.iter().map(one).collect()
        }
        Shape::Union(union) => {
            mistakes.at(union, "a union doesn't know which of its fields it has: use an enum");
            Vec::new()
        }
    };
    let bounds = (alternatives.iter().flat_map(|alternative| &alternative.fields))
        .flat_map(|field| bounded(&field.ty, item).into_iter().map(|ty| (ty, field.part())))
        .collect();
    Keyed { runtime: item.runtime.clone().unwrap_or_else(|| parse_quote!(::lock_runtime)), alternatives, bounds }
}

impl Part {
    /// A single field needs no mark.
    pub(super) fn part(&self) -> PartOfKey {
        self.mark.unwrap_or(PartOfKey::Itself)
    }
}

fn check_not_empty(name: &Ident, fields: &[Part], mistakes: &mut Mistakes) {
    if fields.is_empty() {
        mistakes.at(name, "a struct without fields names nothing: for one lock for every call write `key = \"all\"`");
    }
}

/// The marked fields; a single field needs no mark. With several fields the marks are required: a field added later must not silently
/// change every key.
fn alternative<'a>(
    variant: Option<&'a Ident>,
    name: &Ident,
    fields: &'a [Part],
    mistakes: &mut Mistakes,
) -> Alternative<'a> {
    let mut key: Vec<&Part> = fields.iter().filter(|field| field.mark.is_some()).collect();
    if key.is_empty() {
        key.extend(fields.first());
        if fields.len() > 1 {
            mistakes.at(name, format!("which fields of `{name}` are the key? put `#[lock_key]` above each of them"));
        }
    }
    Alternative { variant, fields: key }
}

/// The bounds that a field's type needs. For a recursive type these are on its parameters: whether the type itself is a key is what the
/// impl has to prove.
fn bounded(ty: &Type, item: &Item) -> Vec<Type> {
    let mentions = |name: &str| {
        any_token(ty.to_token_stream(), &|token| matches!(token, TokenTree::Ident(mentioned) if mentioned == name))
    };
    let parameters = item.generics.type_params().map(|parameter| &parameter.ident);
    let parameters = parameters.filter(|name| mentions(&name.to_string()));
    let parameters: Vec<Type> = parameters.map(|name| parse_quote!(#name)).collect();
    let is_recursive = mentions("Self") || mentions(&item.name.to_string());
    if parameters.is_empty() || is_recursive { parameters } else { vec![ty.clone()] }
}
