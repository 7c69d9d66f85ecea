//! How a call is forwarded to the implementation: by a fn whose body is the call.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, CapturedParam, FnArg, GenericParam, Ident, Meta, Pat, PatType, Path, Receiver, ReceiverKind, ReturnType,
    Safety, Signature, Token, TraitItemConst, Type, TypePath, Visibility, parse_quote, token,
};

use super::super::shape::{only_argument, plain_type, returned_future};
use crate::cache_lock::parse::{Body, Function, Interface, Method, conditional};
use crate::mistakes::Mistakes;
use bounds::{Bounds, bounds_of_others, bounds_of_self, check_may_wait};
pub(super) use bounds::{bounds, bounds_of_values};

mod bounds;

/// The pointer in which the proxy keeps its implementation when a method takes `self: Arc<Self>`.
pub(in crate::cache_lock) struct Sharing {
    /// `Arc` or `Rc`.
    pub(in crate::cache_lock) is_rc: bool,
}

/// What forwarding needs to know.
pub(super) struct Through<'a> {
    pub(super) interface: &'a Interface,
    pub(super) name: Option<&'a Ident>,
    pub(super) inner: &'a Ident,
    pub(super) runtime: &'a Path,
    pub(super) sharing: Option<&'a Sharing>,
}

/// How a method takes `self`.
enum Taken {
    Value,
    Reference { is_mut: bool },
    Boxed,
    Shared { is_rc: bool },
    Other,
}

fn taken(receiver: &Receiver) -> Taken {
    let typed = match &receiver.kind {
        ReceiverKind::Value => return Taken::Value,
        ReceiverKind::Reference(_, _, mutability) => return Taken::Reference { is_mut: mutability.is_some() },
        ReceiverKind::Typed(_, typed) => plain_type(typed),
        _ => return Taken::Other,
    };
    let is_self = |of: Option<&Type>| of.is_some_and(is_self);
    match typed {
        Type::Reference(reference) if is_self(Some(&reference.elem)) => {
            Taken::Reference { is_mut: reference.mutability.is_some() }
        }
        typed if is_self(Some(typed)) => Taken::Value,
        typed if is_self(only_argument(typed, "Box")) => Taken::Boxed,
        typed if is_self(only_argument(typed, "Arc")) => Taken::Shared { is_rc: false },
        typed if is_self(only_argument(typed, "Rc")) => Taken::Shared { is_rc: true },
        _ => Taken::Other,
    }
}

pub(in crate::cache_lock) fn is_self(of: &Type) -> bool {
    matches!(plain_type(of), Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self"))
}

/// A proxy that hands out an `Arc` of its implementation keeps it in one.
pub(super) fn sharing<'a>(methods: impl Iterator<Item = &'a Method>) -> Option<Sharing> {
    methods.filter_map(|method| method.signature.receiver()).find_map(|receiver| match taken(receiver) {
        Taken::Shared { is_rc } => Some(Sharing { is_rc }),
        _ => None,
    })
}

/// The proxy's fn. `None` when the call can't be forwarded.
pub(super) fn function(method: &Method, through: &Through<'_>, mistakes: &mut Mistakes) -> Option<Function> {
    let mut signature = method.signature.clone();
    let receiver = signature.receiver().cloned();
    let this = receiver.as_ref().map(|receiver| mistakes.ok(implementation(receiver, through)));
    let arguments: Vec<Option<TokenStream>> = (signature.inputs.iter_mut().enumerate())
        .filter_map(|(at, argument)| match argument {
            FnArg::Typed(argument) => Some(mistakes.ok(passed_on(argument, at))),
            FnArg::Receiver(receiver) => {
                if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
                    receiver.mutability = None;
                }
                None
            }
        })
        .collect();
    let returned = mistakes.ok(Returned::of(&method.signature));
    let bounds = bounds_of_others(&method.signature).map(check_bounds_have_no_self);
    let may_wait = method.lock.as_ref().map(|_| check_may_wait(&method.signature));
    let own = check_bounds_of_self(&method.signature);
    let is_fit: Option<()> = mistakes.ok(bounds.chain(may_wait).chain([own]).collect());
    let this = match this {
        Some(this) => Some(this?),
        None => None,
    };
    is_fit?;
    let arguments: Vec<TokenStream> = arguments.into_iter().collect::<Option<_>>()?;
    let call = call(&signature, this.as_ref(), &arguments, through);
    let tokens = returned?.passed_back(call, receiver.as_ref(), &signature, through);
    Captured(through.inner).visit_return_type_mut(&mut signature.output);
    let place = method.lock.as_ref().map_or_else(Span::call_site, |(_, place)| *place);
    Some(Function {
        place,
        attributes: method.attributes.iter().filter_map(kept).collect(),
        visibility: Visibility::Inherited,
        defaultness: None,
        signature,
        marks: method.marks.clone(),
        body: Some(Body { brace: token::Brace(Span::mixed_site()), tokens }),
        rest: TokenStream::new(),
    })
}

/// `use<'a, Self>` allows only parameters, so the implementation replaces the proxy there.
struct Captured<'a>(&'a Ident);

impl VisitMut for Captured<'_> {
    fn visit_captured_param_mut(&mut self, node: &mut CapturedParam) {
        if let CapturedParam::Ident(name) = node
            && name == "Self"
        {
            *name = Ident::new(&self.0.to_string(), name.span());
        }
    }
}

/// Keeps an attribute that says when the method exists, or which lints its author turned off; of a `cfg_attr` those inside.
fn kept(attribute: &Attribute) -> Option<Attribute> {
    let meta = kept_meta(&attribute.meta)?;
    Some(Attribute { meta, ..attribute.clone() })
}

fn kept_meta(meta: &Meta) -> Option<Meta> {
    if let Some((predicate, attributes)) = conditional(meta) {
        let kept: Vec<Meta> = attributes.iter().filter_map(kept_meta).collect();
        return (!kept.is_empty()).then(|| parse_quote!(cfg_attr(#predicate, #(#kept),*)));
    }
    ["cfg", "allow", "warn", "deny"].iter().any(|name| meta.path().is_ident(name)).then(|| meta.clone())
}

/// The implementation as the receiver of the call.
fn implementation(receiver: &Receiver, through: &Through<'_>) -> syn::Result<TokenStream> {
    let (this, runtime) = (receiver.self_token, through.runtime);
    let span = this.span.resolved_at(Span::mixed_site());
    let taken = taken(receiver);
    let advice = match (&taken, through.sharing) {
        (Taken::Value | Taken::Boxed | Taken::Reference { is_mut: true }, Some(_)) => {
            "another method takes `self: Arc<Self>`, so the proxy shares its implementation and can't give it away or change it: \
             take `&self`"
        }
        (Taken::Shared { is_rc }, Some(sharing)) if sharing.is_rc != *is_rc => {
            "the proxy has its implementation either in an `Arc` or in an `Rc`: use one of them"
        }
        (Taken::Value, _) => return Ok(quote_spanned!(span=> #this.inner)),
        (Taken::Reference { is_mut: false }, _) => return Ok(quote_spanned!(span=> &#this.inner)),
        (Taken::Reference { is_mut: true }, _) => return Ok(quote_spanned!(span=> &mut #this.inner)),
        (Taken::Boxed, _) => {
            return Ok(quote_spanned!(span=> #runtime::__private::std::boxed::Box::new((*#this).inner)));
        }
        (Taken::Shared { .. }, _) => {
            return Ok(quote_spanned!(span=> #runtime::__private::core::clone::Clone::clone(&#this.inner)));
        }
        (Taken::Other, _) => {
            "the proxy can't pass on a `self` of this type: take `self`, `&self`, `&mut self`, `self: Box<Self>` or \
             `self: Arc<Self>`"
        }
    };
    Err(syn::Error::new_spanned(receiver, advice))
}

/// The argument as passed to the implementation. It gets a name if it has none.
fn passed_on(argument: &mut PatType, at: usize) -> syn::Result<TokenStream> {
    if let Some(attribute) = argument.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
        return Err(syn::Error::new_spanned(
            attribute,
            "an argument that is not always there can't be passed on: write two methods, each with its `#[cfg]`",
        ));
    }
    let name = match &*argument.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() => pattern.ident.clone(),
        other => Ident::new(&format!("__arg{at}"), other.span().resolved_at(Span::mixed_site())),
    };
    *argument.pat = parse_quote!(#name);
    let span = name.span().resolved_at(Span::mixed_site());
    Ok(match plain_type(&argument.ty) {
        this if is_self(this) => quote_spanned!(span=> #name.inner),
        Type::Reference(reference) if is_self(&reference.elem) => {
            let mutability = reference.mutability;
            quote_spanned!(span=> &#mutability #name.inner)
        }
        other => {
            check_has_no_self(other)?;
            quote!(#name)
        }
    })
}

fn check_has_no_self(of: &Type) -> syn::Result<()> {
    check_has_self_only(0, of)
}

/// `Self` in a place that the proxy does not fill in is a mistake.
fn check_has_self_only(filled_in: usize, of: &Type) -> syn::Result<()> {
    let mut found = FindSelf(Vec::new());
    found.visit_type_mut(&mut of.clone());
    found.refuse_beyond(filled_in)
}

fn check_bounds_have_no_self(bounds: &Bounds) -> syn::Result<()> {
    let mut found = FindSelf(Vec::new());
    bounds.clone().iter_mut().for_each(|bound| found.visit_type_param_bound_mut(bound));
    found.refuse_beyond(0)
}

/// The proxy's `impl` asks for the bounds on `Self`, and can't name a parameter of one method: `where Self: Future<Output = R>`.
fn check_bounds_of_self(signature: &Signature) -> syn::Result<()> {
    let mut found = FindOwn { signature, found: None };
    bounds_of_self(signature).for_each(|bound| found.visit_type_param_bound_mut(&mut bound.clone()));
    found.found.map_or(Ok(()), |parameter| {
        let reason = "the proxy has to ask the implementation for this, and `{}` is a parameter of this method alone: leave \
                      the method to a trait of its own";
        Err(syn::Error::new_spanned(&parameter, reason.replace("{}", &parameter.to_string())))
    })
}

/// Finds a type parameter of the method.
struct FindOwn<'a> {
    signature: &'a Signature,
    found: Option<Ident>,
}

impl VisitMut for FindOwn<'_> {
    fn visit_path_mut(&mut self, path: &mut Path) {
        let first = path.segments.first().map(|first| &first.ident);
        if let Some(own) = first.filter(|first| self.signature.generics.type_params().any(|own| own.ident == **first)) {
            self.found.get_or_insert_with(|| own.clone());
        }
        syn::visit_mut::visit_path_mut(self, path);
    }
}

/// Finds `Self` as a type of its own; `Self::Item` is the same type for the proxy and its implementation.
struct FindSelf(Vec<TypePath>);

impl FindSelf {
    fn refuse_beyond(&self, filled_in: usize) -> syn::Result<()> {
        self.0.get(filled_in).map_or(Ok(()), |this| {
            Err(syn::Error::new_spanned(
                this,
                "the proxy can't turn its own type into the implementation's here: take or return `Self`, `&Self`, \
                 `Option<Self>` or `Result<Self, E>`, or leave the method to a trait of its own",
            ))
        })
    }
}

impl VisitMut for FindSelf {
    fn visit_type_path_mut(&mut self, path: &mut TypePath) {
        if path.qself.is_none() && path.path.is_ident("Self") {
            self.0.push(path.clone());
        }
        self.visit_path_mut(&mut path.path);
    }
}

// Input:
//     async fn buy<K>(&self, _: u64, name: &str) -> u64;
//
// Output:
//     <T as Shop>::buy::<K>(&self.inner, __arg1, name).await
fn call(
    signature: &Signature,
    this: Option<&TokenStream>,
    arguments: &[TokenStream],
    through: &Through<'_>,
) -> TokenStream {
    let (inner, name) = (through.inner, &signature.ident);
    let span = name.span().resolved_at(Span::mixed_site());
    let interface = through.interface.path();
    let generics = signature.generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(&parameter.ident),
        GenericParam::Const(parameter) => Some(&parameter.ident),
        GenericParam::Lifetime(_) => None,
    });
    let generics: Punctuated<&Ident, Token![,]> = generics.collect();
    let generics = (!generics.is_empty()).then(|| quote_spanned!(span=> ::<#generics>));
    let passed = this.into_iter().chain(arguments);
    let call = quote_spanned!(span=> <#inner as #interface>::#name #generics (#(#passed),*));
    let call = match signature.safety {
        Safety::Unsafe(_) => quote_spanned!(span=> unsafe { #call }),
        _ => call,
    };
    if signature.asyncness.is_some() { quote_spanned!(span=> #call.await) } else { call }
}

/// How the returned value is passed back.
enum Returned {
    AsItIs,
    /// Another implementation, which gets a proxy, too.
    Implementation(Within, Option<IsBoxed>),
}

type IsBoxed = bool;

enum Within {
    Itself,
    Option,
    Result,
}

impl Returned {
    fn of(signature: &Signature) -> syn::Result<Self> {
        let ReturnType::Type(_, returns) = &signature.output else { return Ok(Self::AsItIs) };
        let future = if signature.asyncness.is_some() { None } else { returned_future(returns) };
        let output = plain_type(future.map_or(&**returns, |(output, _)| output));
        let is_boxed = future.map(|(_, is_boxed)| is_boxed);
        let is_self = |of: Option<&Type>| of.is_some_and(is_self);
        let within = match output {
            output if is_self(Some(output)) => Within::Itself,
            output if is_self(only_argument(output, "Option")) => Within::Option,
            output if is_self(only_argument(output, "Result")) => Within::Result,
            _ => return check_has_no_self(returns).map(|()| Self::AsItIs),
        };
        check_has_self_only(1, output)?;
        Ok(Self::Implementation(within, is_boxed))
    }

    // Input:
    //     <T as Shop>::open(name).await
    //
    // Output, for `Result<Self, E>`:
    //     let manager = Clone::clone(&self.manager);
    //     Result::map(<T as Shop>::open(name).await, |inner| LockedShop { inner, manager })
    fn passed_back(
        &self,
        call: TokenStream,
        receiver: Option<&Receiver>,
        signature: &Signature,
        through: &Through<'_>,
    ) -> TokenStream {
        let (Self::Implementation(within, is_boxed), Some(name)) = (self, through.name) else { return call };
        let span = signature.ident.span().resolved_at(Span::mixed_site());
        let (runtime, site) = (through.runtime, span);
        let private = quote_spanned!(site=> #runtime::__private);
        let manager = receiver.map_or_else(
            || quote_spanned!(site=> #private::None),
            |receiver| {
                let this = receiver.self_token;
                quote_spanned!(site=> #private::core::clone::Clone::clone(&#this.manager))
            },
        );
        let inner = match through.sharing {
            None => quote_spanned!(site=> __inner),
            Some(sharing) => {
                let pointer = sharing.pointer(runtime);
                quote_spanned!(site=> #pointer::new(__inner))
            }
        };
        let wrap = quote_spanned!(site=> |__inner| #name { inner: #inner, manager: __manager });
        let wrapped = |value: TokenStream| match within {
            Within::Itself => quote_spanned!(site=> (#wrap)(#value)),
            Within::Option => quote_spanned!(site=> #private::core::option::Option::map(#value, #wrap)),
            Within::Result => quote_spanned!(site=> #private::core::result::Result::map(#value, #wrap)),
        };
        let value = match is_boxed {
            None => wrapped(call),
            Some(is_boxed) => {
                let wrapped = wrapped(quote_spanned!(site=> __future.await));
                let future = quote_spanned!(site=> async move { #wrapped });
                let future =
                    if *is_boxed { quote_spanned!(site=> #private::std::boxed::Box::pin(#future)) } else { future };
                quote_spanned!(site=> let __future = #call; #future)
            }
        };
        quote_spanned!(site=> let __manager = #manager; #value)
    }
}

impl Sharing {
    pub(in crate::cache_lock) fn pointer(&self, runtime: &Path) -> TokenStream {
        let site = Span::mixed_site();
        if self.is_rc {
            quote_spanned!(site=> #runtime::__private::std::rc::Rc)
        } else {
            quote_spanned!(site=> #runtime::__private::std::sync::Arc)
        }
    }
}

impl Interface {
    /// `Repository<'a, K>`
    pub(in crate::cache_lock) fn path(&self) -> TokenStream {
        let name = self.name();
        let (_, generics, _) = self.definition.generics.split_for_impl();
        quote!(#name #generics)
    }
}

pub(super) fn check_constant(constant: &TraitItemConst, mistakes: &mut Mistakes) {
    mistakes.ok(check_has_no_self(&constant.ty));
}
