//! A trait, and which of its methods are locked.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{
    Attribute, Ident, ItemTrait, Meta, Signature, Token, TraitItem, TraitItemConst, TraitItemFn, TraitItemType,
    Visibility,
};

use super::{Mark, Written, conditional_mark, is_cache_lock, options, take_marks};
use crate::mistakes::Mistakes;

/// The trait below the attribute.
pub(in crate::cache_lock) struct Interface {
    /// As it was written, without our attributes and marks.
    pub(in crate::cache_lock) definition: ItemTrait,
    pub(in crate::cache_lock) members: Vec<Member>,
}

pub(in crate::cache_lock) enum Member {
    Method(Method),
    Type(TraitItemType),
    Const(TraitItemConst),
    Other(TokenStream),
}

pub(in crate::cache_lock) struct Method {
    pub(in crate::cache_lock) attributes: Vec<Attribute>,
    pub(in crate::cache_lock) signature: Signature,
    pub(in crate::cache_lock) marks: Vec<Mark>,
    /// The body of a provided method.
    pub(in crate::cache_lock) body: TokenStream,
    /// The options of its `#[cache_lock(…)]`, and its span.
    pub(in crate::cache_lock) lock: Option<(Vec<Written>, Span)>,
}

pub(super) fn starts(tokens: TokenStream) -> bool {
    let read = |input: ParseStream| {
        input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Option<Token![unsafe]>>()?;
        input.parse::<Option<Token![auto]>>()?;
        let is_trait = input.peek(Token![trait]);
        input.parse::<TokenStream>()?;
        Ok(is_trait)
    };
    read.parse2(tokens).unwrap_or(false)
}

pub(super) fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Interface> {
    let mut definition: ItemTrait = syn::parse2(tokens)?;
    let members = definition.items.iter_mut().map(|item| member(item, mistakes)).collect();
    Ok(Interface { definition, members })
}

fn member(item: &mut TraitItem, mistakes: &mut Mistakes) -> Member {
    match item {
        TraitItem::Fn(method) => Member::Method(read_method(method, mistakes)),
        TraitItem::Type(associated) => {
            refuse(&mut associated.attrs, mistakes);
            Member::Type(associated.clone())
        }
        TraitItem::Const(constant) => {
            refuse(&mut constant.attrs, mistakes);
            Member::Const(constant.clone())
        }
        other => Member::Other(other.to_token_stream()),
    }
}

fn read_method(method: &mut TraitItemFn, mistakes: &mut Mistakes) -> Method {
    let marks = take_marks(&mut method.sig);
    let mut locks = take(&mut method.attrs, mistakes).into_iter();
    let lock = locks.next().map(|attribute| (options_of(&attribute, mistakes), attribute.bracket_token.span.join()));
    for second in locks {
        mistakes.at(second, "this method has its lock already: for several locks write `keys = [from, to]`");
    }
    let body = method.default.to_token_stream();
    Method { attributes: method.attrs.clone(), signature: method.sig.clone(), marks, body, lock }
}

fn options_of(attribute: &Attribute, mistakes: &mut Mistakes) -> Vec<Written> {
    match &attribute.meta {
        Meta::Path(_) => Vec::new(),
        Meta::List(list) => options(list.tokens.clone(), mistakes),
        Meta::NameValue(_) => {
            mistakes.at(attribute, "write the options in parentheses: `#[cache_lock(key = id)]`");
            Vec::new()
        }
    }
}

fn refuse(attributes: &mut Vec<Attribute>, mistakes: &mut Mistakes) {
    for attribute in take(attributes, mistakes) {
        mistakes
            .at(attribute, "only a method can be locked: put `#[cache_lock(…)]` above the methods that need the lock");
    }
}

/// Removes our attributes: the compiler would expand them again.
fn take(attributes: &mut Vec<Attribute>, mistakes: &mut Mistakes) -> Vec<Attribute> {
    attributes.retain(|attribute| match conditional_mark(&attribute.meta) {
        Some(mistake) => {
            mistakes.add(mistake);
            false
        }
        None => true,
    });
    attributes.extract_if(.., |attribute| is_cache_lock(attribute.path())).collect()
}

impl Interface {
    pub(in crate::cache_lock) fn name(&self) -> &Ident {
        &self.definition.ident
    }
}

/// A trait with `#[async_trait]` or `#[trait_variant::make(Send)]` below our attribute. These have to run first: they turn an `async fn`
/// into what the proxy forwards.
pub(in crate::cache_lock) struct AboveAsyncTrait {
    /// Up to such an attribute.
    pub(in crate::cache_lock) first: Vec<Attribute>,
    pub(in crate::cache_lock) below: Vec<Attribute>,
    pub(in crate::cache_lock) rest: TokenStream,
}

impl AboveAsyncTrait {
    pub(super) fn read(tokens: TokenStream) -> Option<Self> {
        let read = |input: ParseStream| {
            let attributes = input.call(Attribute::parse_outer)?;
            Ok((attributes, input.parse::<TokenStream>()?))
        };
        let (mut first, rest) = read.parse2(tokens).ok()?;
        let below = first.split_off(first.iter().position(comes_first)? + 1);
        Some(Self { first, below, rest })
    }
}

/// `#[trait_variant::make(SendShop: Send)]` leaves the trait as it is.
fn comes_first(attribute: &Attribute) -> bool {
    let Some(last) = attribute.path().segments.last() else { return false };
    let is_send = || matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == "Send");
    last.ident == "async_trait" || last.ident == "make" && is_send()
}
