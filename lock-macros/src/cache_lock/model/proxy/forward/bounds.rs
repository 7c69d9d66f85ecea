//! The bounds that forwarding a method puts on the implementation and its futures.

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{
    FnArg, Ident, Lifetime, ParenthesizedGenericArguments, Path, ReceiverKind, ReturnType, Signature, Token, Type,
    TypeParamBound, TypePath, TypeReference, WherePredicate, parse_quote,
};

use super::super::super::shape::{only_argument, plain_type};
use super::super::InPlaceOfSelf;
use super::{IsBoxed, Returned, Taken, Through, is_self, taken};
use crate::cache_lock::parse::{Interface, Member, Method};

pub(super) type Bounds = Punctuated<TypeParamBound, Token![+]>;

/// The bounds on the implementation for this method.
pub(in super::super) fn bounds(method: &Method, runtime: &Path) -> Vec<TypeParamBound> {
    let is_asked = |bound: &&TypeParamBound| matches!(bound, TypeParamBound::Trait(bound) if bound.path.segments.last().is_some_and(|last| last.ident != "Sized"));
    let mut bounds: Vec<_> = bounds_of_self(&method.signature).filter(is_asked).cloned().collect();
    // The call is made once the lock is held, by a future that keeps the proxy until then.
    if method.lock.is_some() && is_send_future(&method.signature.output) {
        let names: &[&str] = match method.signature.receiver().map(taken) {
            None => &[],
            Some(Taken::Reference { is_mut: false }) => &["Sync"],
            Some(Taken::Shared { .. }) => &["Send", "Sync"],
            Some(_) => &["Send"],
        };
        bounds.extend(names.iter().map(|name| {
            let name = Ident::new(name, Span::mixed_site());
            parse_quote!(#runtime::__private::core::marker::#name)
        }));
    }
    bounds.extend(lifetime_in_future(method).map(TypeParamBound::Lifetime));
    bounds
}

/// The values that a locked method's future keeps until it ends: arguments and the returned value. When that future must be `Send`, so must
/// every type that the trait leaves open.
pub(in super::super) fn bounds_of_values(method: &Method, through: &Through<'_>) -> Vec<WherePredicate> {
    let Through { interface, inner, runtime, .. } = through;
    if method.lock.is_none() || !is_send_future(&method.signature.output) {
        return Vec::new();
    }
    let mut open = FindOpen { interface, behind_reference: false, found: Vec::new() };
    let mut signature = method.signature.clone();
    for argument in &mut signature.inputs {
        if let FnArg::Typed(typed) = argument {
            open.visit_type_mut(&mut typed.ty);
        }
    }
    open.visit_return_type_mut(&mut signature.output);
    let bounds = open.found.into_iter().map(|(mut open, is_shared)| {
        if open.path.is_ident("Self") {
            InPlaceOfSelf(inner).visit_type_path_mut(&mut open);
        }
        let name = Ident::new(if is_shared { "Sync" } else { "Send" }, Span::mixed_site());
        parse_quote!(#open: #runtime::__private::core::marker::#name)
    });
    bounds.collect()
}

/// Finds `Self`, `Self::Row` and the parameters of the trait, and whether they are behind a reference.
struct FindOpen<'a> {
    interface: &'a Interface,
    behind_reference: bool,
    found: Vec<(TypePath, bool)>,
}

impl VisitMut for FindOpen<'_> {
    fn visit_type_reference_mut(&mut self, node: &mut TypeReference) {
        let outside = std::mem::replace(&mut self.behind_reference, true);
        syn::visit_mut::visit_type_reference_mut(self, node);
        self.behind_reference = outside;
    }

    fn visit_type_path_mut(&mut self, node: &mut TypePath) {
        if self.interface.leaves_open(node) {
            self.found.push((node.clone(), self.behind_reference));
        } else {
            syn::visit_mut::visit_type_path_mut(self, node);
        }
    }

    /// The future holds no value of a closure's arguments or result while it waits.
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}
}

/// How long the implementation has to live because a future of the proxy holds it, or names its type. A reference to the proxy implies
/// that.
fn lifetime_in_future(method: &Method) -> Option<Lifetime> {
    let signature = &method.signature;
    let is_reference = matches!(signature.receiver().map(taken), Some(Taken::Reference { .. }));
    let is_wrapped = matches!(Returned::of(signature), Ok(Returned::Implementation(_, Some(_))));
    let is_made = method.lock.is_some() && !is_reference || is_wrapped;
    let (bounds, is_boxed) = bounds_of_future(&signature.output).filter(|_| is_made)?;
    let written = lifetime_of(bounds);
    let forever = Lifetime::new("'static", Span::mixed_site());
    let Some(written) = written else { return is_boxed.then_some(forever) };
    if written.ident != "_" && signature.generics.lifetimes().all(|own| own.lifetime != *written) {
        return Some(written.clone());
    }
    // The method's own lifetime can't be named in a bound on the implementation.
    let is_said =
        bounds_of_self(signature).any(|bound| matches!(bound, TypeParamBound::Lifetime(said) if said == written));
    (!is_reference && !is_said).then_some(forever)
}

/// `where Self: Sync` on a method.
pub(super) fn bounds_of_self(signature: &Signature) -> impl Iterator<Item = &TypeParamBound> {
    let predicates = signature.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let bounds = predicates.filter_map(|predicate| match predicate {
        WherePredicate::Type(predicate) if is_self(&predicate.bounded_ty) => Some(&predicate.bounds),
        _ => None,
    });
    bounds.flatten()
}

/// `where U: From<Self>` on a method, and `U: From<Self>` among its parameters.
pub(super) fn bounds_of_others(signature: &Signature) -> impl Iterator<Item = &Bounds> {
    let parameters = signature.generics.type_params().map(|parameter| &parameter.bounds);
    let predicates = signature.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let others = predicates.filter_map(|predicate| match predicate {
        WherePredicate::Type(predicate) if !is_self(&predicate.bounded_ty) => Some(&predicate.bounds),
        _ => None,
    });
    parameters.chain(others).filter(|bounds| !bounds.is_empty())
}

fn lifetime_of(bounds: &Bounds) -> Option<&Lifetime> {
    bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Lifetime(lifetime) => Some(lifetime),
        _ => None,
    })
}

/// The bounds of a returned future, and whether it is boxed.
fn bounds_of_future(output: &ReturnType) -> Option<(&Bounds, IsBoxed)> {
    let ReturnType::Type(_, returns) = output else { return None };
    match plain_type(returns) {
        Type::ImplTrait(future) => Some((&future.bounds, false)),
        boxed => match only_argument(boxed, "Pin").and_then(|boxed| only_argument(boxed, "Box")).map(plain_type) {
            Some(Type::TraitObject(future)) => Some((&future.bounds, true)),
            _ => None,
        },
    }
}

fn is_send_future(output: &ReturnType) -> bool {
    let is_send = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Trait(bound) if bound.path.segments.last().is_some_and(|last| last.ident == "Send"));
    bounds_of_future(output).is_some_and(|(bounds, _)| bounds.iter().any(is_send))
}

/// A future that may outlive `self` can't wait for the lock: the proxy that it was called on may be gone.
pub(super) fn check_may_wait(signature: &Signature) -> syn::Result<()> {
    let is_short = match signature.receiver().map(|receiver| &receiver.kind) {
        Some(ReceiverKind::Reference(_, lifetime, _)) => lifetime.as_ref().is_none_or(|own| own.ident != "static"),
        _ => false,
    };
    let Some((bounds, is_boxed)) = bounds_of_future(&signature.output).filter(|_| is_short) else { return Ok(()) };
    let is_forever = match lifetime_of(bounds) {
        None => is_boxed,
        Some(written) => written.ident == "static",
    };
    if !is_forever {
        return Ok(());
    }
    Err(syn::Error::new_spanned(
        &signature.output,
        "this future may outlive `self`, which has the lock's manager and the implementation: write `+ '_`, or take `self: Arc<Self>`",
    ))
}

impl Interface {
    /// Whether each implementation decides the type, and no method does.
    fn leaves_open(&self, of: &TypePath) -> bool {
        let names: Vec<&Ident> = of.path.segments.iter().map(|segment| &segment.ident).collect();
        let is_own = |name: &Ident| {
            let types = self.members.iter().filter_map(|member| match member {
                Member::Type(own) => Some(own),
                _ => None,
            });
            types.filter(|own| own.generics.params.is_empty()).any(|own| own.ident == *name)
        };
        match names[..] {
            _ if of.qself.is_some() => false,
            [name] => name == "Self" || self.definition.generics.type_params().any(|own| own.ident == *name),
            [this, name] => this == "Self" && is_own(name),
            _ => false,
        }
    }
}
