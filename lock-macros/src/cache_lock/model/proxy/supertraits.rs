//! Associated types of supertraits: what a method names as `Self::Row` has to be one type for the proxy and for its implementation.

use quote::ToTokens;
use syn::visit_mut::VisitMut;
use syn::{
    GenericArgument, Ident, Path, PathArguments, TraitItem, TypeParamBound, TypePath, WherePredicate, parse_quote,
};

use super::{InPlaceOfSelf, is_self};
use crate::cache_lock::parse::{Interface, Member};
use crate::mistakes::Mistakes;

/// Well-known supertraits without associated types.
const WITHOUT_TYPES: &str = "
    Send Sync Sized Unpin UnwindSafe RefUnwindSafe Any Clone Copy Debug Display Default Drop Error Eq Hash Ord PartialEq PartialOrd
";

// Input:
//     trait Repository: HasDb { fn put(&self, row: Self::Row); }
//
// Output:
//     Self: HasDb<Row = <T as HasDb>::Row>
//
// `None` when it is unclear which supertrait has a type.
pub(super) fn same_types(interface: &Interface, inner: &Ident, mistakes: &mut Mistakes) -> Option<Vec<WherePredicate>> {
    let supertraits = supertraits(interface);
    let mut same: Vec<WherePredicate> = Vec::new();
    let mut is_known = true;
    for Named { of_trait, name } in named_by(interface) {
        let is_written = of_trait.is_some();
        let has = |path: &&Path| !is_pinned(path, &name);
        let candidates: Vec<&Path> = match &of_trait {
            Some(written) => vec![written],
            None => supertraits.iter().filter(|path| may_have_types(path)).collect(),
        };
        match candidates.iter().copied().filter(has).collect::<Vec<_>>()[..] {
            [of_trait] if candidates.len() == 1 => {
                let clause = same_type(of_trait, &name, inner, is_written);
                if !same.iter().any(|other| other.to_token_stream().to_string() == clause.to_token_stream().to_string())
                {
                    same.push(clause);
                }
            }
            [first, _, ..] => {
                is_known = false;
                let first = &first.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
                mistakes.at(
                    &name,
                    format!("the proxy can't see which supertrait has this type: write `<Self as {first}>::{name}`, with the trait that has it"),
                );
            }
            _ => {}
        }
    }
    is_known.then_some(same)
}

/// An associated type of `Self` that is not the trait's own, and its trait if written.
struct Named {
    of_trait: Option<Path>,
    name: Ident,
}

/// The types that the trait names outside the bodies of its methods.
fn named_by(interface: &Interface) -> Vec<Named> {
    let mut definition = interface.definition.clone();
    for item in &mut definition.items {
        if let TraitItem::Fn(method) = item {
            method.default = None;
        }
    }
    let own = interface.members.iter().filter_map(|member| match member {
        Member::Type(associated) => Some(associated.ident.clone()),
        _ => None,
    });
    let mut find = FindNamed { own: own.collect(), of_trait: interface.name().clone(), found: Vec::new() };
    find.visit_item_trait_mut(&mut definition);
    find.found
}

struct FindNamed {
    own: Vec<Ident>,
    of_trait: Ident,
    found: Vec<Named>,
}

impl VisitMut for FindNamed {
    fn visit_type_path_mut(&mut self, node: &mut TypePath) {
        syn::visit_mut::visit_type_path_mut(self, node);
        let segments = &node.path.segments;
        let Some(last) = segments.last().filter(|last| last.arguments.is_none()) else { return };
        let name = last.ident.clone();
        match &node.qself {
            Some(qself) if is_self(&qself.ty) && qself.position + 1 == segments.len() => {
                let mut of_trait = node.path.clone();
                of_trait.segments.pop();
                of_trait.segments.pop_punct();
                if !of_trait.is_ident(&self.of_trait) {
                    self.found.push(Named { of_trait: Some(of_trait), name });
                }
            }
            None if segments.len() == 2
                && segments.first().is_some_and(|first| first.ident == "Self")
                && !self.own.contains(&name) =>
            {
                self.found.push(Named { of_trait: None, name });
            }
            _ => {}
        }
    }
}

/// `trait Shop: Named`, and `trait Shop where Self: Named`.
fn supertraits(interface: &Interface) -> Vec<Path> {
    let definition = &interface.definition;
    let predicates = definition.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let of_self = predicates.filter_map(|predicate| match predicate {
        WherePredicate::Type(predicate) if is_self(&predicate.bounded_ty) => Some(&predicate.bounds),
        _ => None,
    });
    let bounds = definition.supertraits.iter().chain(of_self.flatten());
    bounds
        .filter_map(|bound| if let TypeParamBound::Trait(bound) = bound { Some(bound.path.clone()) } else { None })
        .collect()
}

fn may_have_types(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| {
        let is_parenthesized = matches!(last.arguments, PathArguments::Parenthesized(_));
        !is_parenthesized && !WITHOUT_TYPES.split_whitespace().any(|name| last.ident == name)
    })
}

/// Whether the bound fixes the type, as `Named<Row = u8>` does.
fn is_pinned(path: &Path, name: &Ident) -> bool {
    path.segments.last().is_some_and(|last| match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .any(|argument| matches!(argument, GenericArgument::AssocType(pinned) if pinned.ident == *name)),
        _ => false,
    })
}

/// A type written without its trait may belong to a supertrait of `of_trait`.
fn same_type(of_trait: &Path, name: &Ident, inner: &Ident, is_written: bool) -> WherePredicate {
    let mut with_type = of_trait.clone();
    let mut of_inner = of_trait.clone();
    InPlaceOfSelf(inner).visit_path_mut(&mut of_inner);
    if let Some(last) = with_type.segments.last_mut() {
        let pinned: GenericArgument = if is_written {
            parse_quote!(#name = <#inner as #of_inner>::#name)
        } else {
            parse_quote!(#name = #inner::#name)
        };
        match &mut last.arguments {
            PathArguments::AngleBracketed(arguments) => arguments.args.push(pinned),
            other => *other = PathArguments::AngleBracketed(parse_quote!(<#pinned>)),
        }
    }
    parse_quote!(Self: #with_type)
}
