//! A trait and its proxy: a type that implements the trait by forwarding each call, the marked ones under their locks.

use proc_macro2::{Span, TokenTree};
use quote::ToTokens;
use syn::visit_mut::VisitMut;
use syn::{Ident, Path, TraitItemConst, TraitItemType, TypeParamBound, TypePath, WherePredicate};

use super::inherited::{beside, inherited};
use super::options::Options;
use super::{Key, Keys, Lock, Manager, model, new_name, runtime, text};
use crate::any_token;
use crate::cache_lock::parse::{Function, Interface, Member, Method, Written};
use crate::mistakes::Mistakes;
use forward::Through;
pub(in crate::cache_lock) use forward::{Sharing, is_self};
use locked::check_options;
pub(in crate::cache_lock) use order::check_mock_comes_last;

mod forward;
mod locked;
mod order;
mod self_calls;
mod supertraits;

/// What the attribute generates for a trait.
pub(in crate::cache_lock) struct Proxy {
    /// The path of the runtime.
    pub(in crate::cache_lock) runtime: Path,
    pub(in crate::cache_lock) name: Ident,
    /// The type parameter for the implementation.
    pub(in crate::cache_lock) inner: Ident,
    pub(in crate::cache_lock) sharing: Option<Sharing>,
    /// What the implementation has to be besides the trait.
    pub(in crate::cache_lock) bounds: Vec<TypeParamBound>,
    /// What the proxy has to be: its supertraits' types are those of the implementation.
    pub(in crate::cache_lock) clauses: Vec<WherePredicate>,
    pub(in crate::cache_lock) members: Vec<ProxyMember>,
    /// Whether it has every member of the trait. If not, there is a mistake already, and the compiler would report a missing item, too.
    pub(in crate::cache_lock) is_whole: bool,
}

pub(in crate::cache_lock) enum ProxyMember {
    /// A method, and its lock.
    Method(Box<Function>, Option<Box<Lock>>),
    Type(TraitItemType),
    Const(TraitItemConst),
}

/// `None` when there can be no proxy; other mistakes are only added.
pub(in crate::cache_lock) fn proxy(
    written: Vec<Written>,
    interface: &Interface,
    mistakes: &mut Mistakes,
) -> Option<Proxy> {
    check_has_locked_method(interface, mistakes);
    self_calls::check(interface, mistakes);
    let mut options = Options::new(written, mistakes);
    let name = name(&mut options, interface, mistakes);
    let inherited = inherited(options, mistakes);
    let runtime = runtime_of(&inherited);
    let methods = interface.members.iter().filter_map(|member| match member {
        Member::Method(method) => Some(method),
        _ => None,
    });
    let inner = unused_name(interface);
    let sharing = forward::sharing(methods);
    let through =
        Through { interface, name: name.as_ref(), inner: &inner, runtime: &runtime, sharing: sharing.as_ref() };
    let mut bounds = Vec::new();
    let mut of_values: Vec<WherePredicate> = Vec::new();
    let mut members = Vec::new();
    let mut is_whole = true;
    for member in &interface.members {
        match member {
            Member::Type(associated) => members.push(ProxyMember::Type(associated.clone())),
            Member::Const(constant) => {
                forward::check_constant(constant, mistakes);
                members.push(ProxyMember::Const(constant.clone()));
            }
            Member::Other(other) => {
                is_whole = false;
                mistakes.at(
                    other,
                    "the proxy can't see which methods this makes: write them out, or put them into a trait of their own",
                );
            }
            Member::Method(method) => {
                let Some(function) = forward::function(method, &through, mistakes) else {
                    is_whole = false;
                    continue;
                };
                let lock = lock(method, &function, &inherited, name.as_ref(), mistakes);
                bounds.extend(forward::bounds(method, &runtime));
                for bound in forward::bounds_of_values(method, &through) {
                    if !of_values.contains(&bound) {
                        of_values.push(bound);
                    }
                }
                members.push(ProxyMember::Method(Box::new(function), lock.map(Box::new)));
            }
        }
    }
    let clauses = supertraits::same_types(interface, &inner, mistakes);
    is_whole &= clauses.is_some();
    let mut clauses = clauses.unwrap_or_default();
    clauses.extend(of_values);
    Some(Proxy { runtime, name: name?, inner, sharing, bounds, clauses, members, is_whole })
}

/// The name of the new type in `proxy = LockedShop`.
fn name(options: &mut Options, interface: &Interface, mistakes: &mut Mistakes) -> Option<Ident> {
    let of_trait = interface.name();
    let Some(option) = options.take("proxy") else {
        mistakes.at(
            of_trait,
            format!(
                "a trait is locked by a proxy around its implementation: write `#[cache_lock(proxy = Locked{of_trait})]`, which \
                 makes the type `Locked{of_trait}`"
            ),
        );
        return None;
    };
    let written = option.value;
    let place = written.as_ref().map_or_else(|| option.name.to_token_stream(), ToTokens::to_token_stream);
    let Some(name) = written.as_ref().and_then(new_name) else {
        let example = written.as_ref().and_then(text).map_or_else(|| format!("Locked{of_trait}"), syn::LitStr::value);
        mistakes.at(
            place,
            format!("`proxy` is the name of a new type, without quotes and parameters: write `proxy = {example}`"),
        );
        return None;
    };
    if name == *of_trait {
        mistakes.at(place, format!("this is the trait's own name: write `proxy = Locked{of_trait}`"));
        return None;
    }
    Some(name)
}

/// Its mistakes are reported where a fn needs the runtime.
pub(in crate::cache_lock) fn runtime_of(written: &[Written]) -> Path {
    let of_crate = written.iter().filter(|option| option.name == "crate").cloned().collect();
    let mut untold = Mistakes::default();
    runtime(&mut Options::new(of_crate, &mut untold), &mut untold)
}

impl Proxy {
    /// Options with mistakes make no lock.
    pub(in crate::cache_lock) fn remove_locks(&mut self) {
        for member in &mut self.members {
            if let ProxyMember::Method(_, lock) = member {
                *lock = None;
            }
        }
    }
}

/// Replaces `Self` by the implementation, also in `Self::Item`.
pub(in crate::cache_lock) struct InPlaceOfSelf<'a>(pub(in crate::cache_lock) &'a Ident);

impl VisitMut for InPlaceOfSelf<'_> {
    fn visit_type_path_mut(&mut self, node: &mut TypePath) {
        syn::visit_mut::visit_type_path_mut(self, node);
        if node.qself.is_none()
            && let Some(first) = node.path.segments.first_mut().filter(|first| first.ident == "Self")
        {
            first.ident = self.0.clone();
        }
    }
}

fn check_has_locked_method(interface: &Interface, mistakes: &mut Mistakes) {
    let is_locked = |member: &Member| matches!(member, Member::Method(Method { lock: Some(_), .. }));
    // An earlier mistake may be a mark that could not be read.
    if mistakes.is_empty() && !interface.members.iter().any(is_locked) {
        mistakes.at(
            interface.name(),
            "no method of this trait is locked: put `#[cache_lock(key = id)]`, by this name, above each method that needs the lock",
        );
    }
}

/// `T`, unless the trait uses that name.
fn unused_name(interface: &Interface) -> Ident {
    let definition = interface.definition.to_token_stream();
    let is_used =
        |name: &str| any_token(definition.clone(), &|token| matches!(token, TokenTree::Ident(ident) if ident == name));
    let name = ["T", "Inner", "Implementation"].into_iter().find(|name| !is_used(name)).unwrap_or("__T");
    Ident::new(name, Span::call_site())
}

/// The lock of a marked method: as of a fn whose body forwards the call.
fn lock(
    method: &Method,
    function: &Function,
    inherited: &[Written],
    proxy: Option<&Ident>,
    mistakes: &mut Mistakes,
) -> Option<Lock> {
    let Some((own, _)) = &method.lock else {
        for mark in &method.marks {
            mistakes.at(
                &mark.attribute,
                "this mark does nothing: put `#[cache_lock(…)]` above the method, or remove the mark",
            );
        }
        return None;
    };
    let mut written = own.clone();
    written.extend(beside(own, inherited).into_iter().cloned());
    let written = check_options(written, method, proxy, mistakes);
    let mut lock = model(written, function, mistakes)?;
    if let Key::Several(Keys::Iterator(used_up)) = &lock.key {
        mistakes.at(
            used_up,
            format!("the keys would use `{used_up}` up, and the implementation needs it: take a list, such as `{used_up}: &[u64]`"),
        );
    }
    if let (None, Some(receiver)) = (&lock.manager, function.signature.receiver()) {
        lock.manager = Some(Manager::OfProxy(receiver.self_token));
    }
    Some(lock)
}
