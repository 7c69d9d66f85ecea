//! What was written: the type, and which of its fields are marked.

use proc_macro2::TokenStream;
use syn::parse::ParseStream;
use syn::{Attribute, Data, DeriveInput, Field, Fields, Generics, Ident, Meta, Path, Token, Type};

use crate::mistakes::Mistakes;

pub(super) struct Item {
    pub(super) name: Ident,
    pub(super) generics: Generics,
    /// From `#[lock_key(crate = PATH)]`.
    pub(super) runtime: Option<Path>,
    pub(super) shape: Shape,
}

pub(super) enum Shape {
    Struct(Vec<Part>),
    Enum(Vec<Variant>),
    Union(Token![union]),
}

pub(super) struct Variant {
    pub(super) name: Ident,
    pub(super) fields: Vec<Part>,
}

pub(super) struct Part {
    pub(super) member: syn::Member,
    pub(super) ty: Type,
    pub(super) mark: Option<PartOfKey>,
}

/// How a marked field becomes a part of the key.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PartOfKey {
    /// `#[lock_key]`: by its `LockKey`.
    Itself,
    /// `#[lock_key(display)]`: as the text that its `Display` writes.
    Text,
}

pub(super) fn item(tokens: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Item> {
    let input: DeriveInput = syn::parse2(tokens)?;
    let runtime = runtime(&input.attrs, mistakes);
    let shape = match input.data {
        Data::Struct(data) => Shape::Struct(fields(data.fields, mistakes)),
        Data::Union(data) => Shape::Union(data.union_token),
        Data::Enum(data) => {
            let variant = |variant: syn::Variant| {
                for mark in marks(&variant.attrs) {
                    mistakes.at(mark, "a variant's name is part of the key anyway: put `#[lock_key]` on its fields");
                }
                Variant { name: variant.ident, fields: fields(variant.fields, mistakes) }
            };
            Shape::Enum(data.variants.into_iter().map(variant).collect())
        }
    };
    Ok(Item { name: input.ident, generics: input.generics, runtime, shape })
}

/// On the type, the attribute only gives the path of the runtime.
fn runtime(attributes: &[Attribute], mistakes: &mut Mistakes) -> Option<Path> {
    let mut runtime = None;
    for mark in marks(attributes) {
        if matches!(mark.meta, Meta::Path(_)) {
            mistakes.at(mark, "on a type this does nothing: put `#[lock_key]` on the fields that are the key");
            continue;
        }
        let read = |input: ParseStream| {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            let path = input.call(Path::parse_mod_style)?;
            input.parse::<Option<Token![,]>>()?;
            Ok(path)
        };
        match mark.parse_args_with(read) {
            Ok(_) if runtime.is_some() => mistakes.at(mark, "`crate` is given twice: keep one"),
            Ok(path) => runtime = Some(path),
            Err(_) => mistakes.at(mark, "on a type write `#[lock_key(crate = path::to::lock_runtime)]`, or nothing"),
        }
    }
    runtime
}

fn fields(fields: Fields, mistakes: &mut Mistakes) -> Vec<Part> {
    let members: Vec<_> = fields.members().collect();
    members
        .into_iter()
        .zip(fields)
        .map(|(member, field)| Part { member, mark: mark(&field, mistakes), ty: field.ty })
        .collect()
}

fn mark(field: &Field, mistakes: &mut Mistakes) -> Option<PartOfKey> {
    let mut found = None;
    for mark in marks(&field.attrs) {
        if found.is_some() {
            mistakes.at(mark, "this field is marked twice: keep one `#[lock_key]`");
        }
        found = Some(part_of_key(mark, mistakes));
    }
    found
}

fn part_of_key(mark: &Attribute, mistakes: &mut Mistakes) -> PartOfKey {
    if matches!(mark.meta, Meta::Path(_)) {
        return PartOfKey::Itself;
    }
    let word = mark.parse_args::<Ident>();
    if !word.is_ok_and(|word| word == "display") {
        mistakes.at(
            mark,
            "on a field write `#[lock_key]`, or `#[lock_key(display)]` for the text that its `Display` writes; the parts of a \
             key are in the order of the fields",
        );
    }
    PartOfKey::Text
}

fn marks(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("lock_key"))
}
