//! The kinds of fns: the ways to be async, and blocking.

use proc_macro2::TokenTree;
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{
    AssocConst, AssocType, Block, Expr, GenericArgument, GenericParam, Ident, Lifetime, Local,
    ParenthesizedGenericArguments, Pat, PathArguments, PathSegment, ReturnType, Stmt, Token, Type, TypeInfer,
    TypeParamBound, parse_quote_spanned,
};

use super::bindings::bindings_of_pattern;
use crate::cache_lock::parse::Function;
use crate::mistakes::Mistakes;
use crate::{any_token, in_one_piece};

pub(in crate::cache_lock) enum Shape {
    /// `async fn f() -> T`.
    AsyncFn { output: Type },
    /// An `async fn f() -> T` that `#[async_trait]` has rewritten to `Box::pin(async move { prelude; body })`.
    AsyncTrait {
        output: Type,
        /// `Box::pin`
        pin: Expr,
        /// Moves the arguments to the names that the body uses, `self` to `__self`.
        prelude: Vec<Stmt>,
        body: Block,
    },
    /// `fn f() -> impl Future<Output = T>`, or boxed.
    Future {
        output: Type,
        is_boxed: bool,
        /// Whether its author wrote `async fn`, in a trait with `#[async_trait]`: then it begins with the first poll.
        is_async_fn: bool,
        start: Start,
    },
    /// `fn f() -> T`, which waits on its thread.
    Blocking { output: Type },
}

/// What the body of a fn that returns a future does.
pub(in crate::cache_lock) enum Start {
    /// Only `async move { … }`: its content.
    AsyncBlock(Block),
    /// Ends with a future of this type (`_` for an `impl Future`).
    Any(Box<Type>),
}

pub(super) fn shape(function: &Function, mistakes: &mut Mistakes) -> Option<Shape> {
    let signature = &function.signature;
    if function.body.is_none() {
        mistakes.at(
            &signature.ident,
            "a fn without a body has nothing to run under the lock: write `#[cache_lock(proxy = LockedShop)]` above the trait \
             `Shop`, which makes a proxy that locks, or put this attribute on the fns that implement it",
        );
        return None;
    }
    let ident = signature.ident.span();
    let returns = match &signature.output {
        ReturnType::Default => parse_quote_spanned!(ident=> ()),
        ReturnType::Type(_, returns) => Type::clone(returns),
    };
    if signature.asyncness.is_some() {
        check_output(&returns, mistakes);
        let output = without_impl(returns);
        return Some(Shape::AsyncFn { output });
    }
    if let Some((output, is_boxed)) = returned_future(&returns) {
        check_output(output, mistakes);
        let output = without_impl(output.clone());
        check_bounds(&returns, mistakes);
        return Some(future(output, is_boxed, &returns, function));
    }
    if let Some(constness) = &signature.constness {
        mistakes.at(constness, "a `const fn` can't wait for a lock: remove `const`");
        return None;
    }
    if starts_a_runtime(function) {
        mistakes.at(
            signature.fn_token,
            "an attribute such as `#[tokio::main]` took the `async` away: put `#[cache_lock]` above it",
        );
        return None;
    }
    check_output(&returns, mistakes);
    Some(Shape::Blocking { output: without_impl(returns) })
}

/// Whether the body is what `#[tokio::main]` and `#[tokio::test]` make of an async fn.
fn starts_a_runtime(function: &Function) -> bool {
    let is_mark = |token: TokenTree| token.to_string() == "\"Failed building the Runtime\"";
    function.body.as_ref().is_some_and(|body| any_token(body.tokens.clone(), &is_mark))
}

fn future(output: Type, is_boxed: bool, returns: &Type, function: &Function) -> Shape {
    let is_async_fn = is_async_trait(function);
    let start = match lone_async_block(function, is_boxed) {
        Some((Some(pin), block)) if is_async_fn => match split_prelude(&block) {
            Some((prelude, body)) => return Shape::AsyncTrait { output, pin, prelude, body },
            None => Start::AsyncBlock(block),
        },
        Some((_, block)) => Start::AsyncBlock(block),
        None => {
            let span = returns.span();
            let future = if is_boxed { with_inferred_lifetime(returns) } else { parse_quote_spanned!(span=> _) };
            Start::Any(Box::new(future))
        }
    };
    Shape::Future { output, is_boxed, is_async_fn, start }
}

impl Shape {
    pub(in crate::cache_lock) fn output(&self) -> &Type {
        match self {
            Self::AsyncFn { output }
            | Self::AsyncTrait { output, .. }
            | Self::Future { output, .. }
            | Self::Blocking { output } => output,
        }
    }

    pub(in crate::cache_lock) fn is_blocking(&self) -> bool {
        matches!(self, Self::Blocking { .. })
    }

    pub(super) fn returns_nothing(&self) -> bool {
        matches!(plain_type(self.output()), Type::Tuple(tuple) if tuple.elems.is_empty())
    }

    /// The names that the body of an `#[async_trait]` fn has for the arguments.
    pub(super) fn variables_of_prelude(&self) -> Option<Vec<Ident>> {
        matches!(self, Self::AsyncTrait { .. })
            .then(|| self.patterns_of_prelude().flat_map(bindings_of_pattern).collect())
    }

    /// The patterns of these variables.
    pub(super) fn patterns_of_prelude(&self) -> impl Iterator<Item = &Pat> {
        let prelude = if let Self::AsyncTrait { prelude, .. } = self { prelude.as_slice() } else { &[] };
        prelude.iter().filter_map(|statement| match statement {
            Stmt::Local(local) => Some(&local.pat),
            _ => None,
        })
    }

    /// The pattern of an argument that `#[async_trait]` has renamed:
    /// `let Path(id) = { let __arg1 = __arg1; __arg1 };`.
    pub(super) fn pattern_behind(&self, renamed: &Ident) -> Option<&Pat> {
        let Self::AsyncTrait { prelude, .. } = self else {
            return None;
        };
        prelude.iter().find_map(|statement| {
            let Stmt::Local(Local { pat, init: Some(init), .. }) = statement else {
                return None;
            };
            let Expr::Block(block) = &*init.expr else {
                return None;
            };
            let Some(Stmt::Local(first)) = block.block.stmts.first() else {
                return None;
            };
            matches!(&first.pat, Pat::Ident(pattern) if pattern.ident == *renamed).then_some(pat)
        })
    }
}

/// `impl Future<Output = T> + …` or `Pin<Box<dyn Future<Output = T> + …>>`: `T`, and whether it is boxed.
pub(super) fn returned_future(returns: &Type) -> Option<(&Type, bool)> {
    let (bounds, is_boxed) = bounds_of_future(returns)?;
    bounds.iter().find_map(future_output).map(|output| (output, is_boxed))
}

/// The bounds of the future that the fn returns, and whether the future is boxed.
fn bounds_of_future(returns: &Type) -> Option<(&Punctuated<TypeParamBound, Token![+]>, bool)> {
    match plain_type(returns) {
        Type::ImplTrait(future) => Some((&future.bounds, false)),
        Type::Path(_) => match plain_type(only_argument(only_argument(returns, "Pin")?, "Box")?) {
            Type::TraitObject(future) => Some((&future.bounds, true)),
            _ => None,
        },
        _ => None,
    }
}

/// A future that waits for a lock is neither `Sync` nor `Unpin`, whatever the body is.
fn check_bounds(returns: &Type, mistakes: &mut Mistakes) {
    let bounds = bounds_of_future(returns).into_iter().flat_map(|(bounds, _)| bounds);
    for bound in bounds {
        let TypeParamBound::Trait(bound) = bound else { continue };
        let instead = match bound.path.segments.last() {
            Some(last) if last.ident == "Sync" => "leave `Sync` out: a future is polled by one thread at a time",
            Some(last) if last.ident == "Unpin" => "return `Pin<Box<dyn Future<Output = …> + Send>>`, which is `Unpin`",
            _ => continue,
        };
        let name = &bound.path;
        mistakes.at(name, format!("a future that waits for a lock is not `{}`: {instead}", name.to_token_stream()));
    }
}

/// A future or a stream in the returned value, as in `Result<impl Stream<Item = T>, E>`, would run without the lock. One behind another
/// crate's type name is not found.
fn check_output(output: &Type, mistakes: &mut Mistakes) {
    let mut later = FindLater(Vec::new());
    later.visit_type_mut(&mut output.clone());
    for name in later.0 {
        let instead = if name == "Stream" { "read it in the body" } else { "await it in the body" };
        mistakes.at(
            &name,
            format!("this `{name}` would run when the lock is released: {instead}, and return what it yields"),
        );
    }
}

struct FindLater(Vec<Ident>);

impl VisitMut for FindLater {
    fn visit_type_param_bound_mut(&mut self, bound: &mut TypeParamBound) {
        let TypeParamBound::Trait(of_trait) = bound else { return };
        match of_trait.path.segments.last() {
            Some(last) if last.ident == "Future" || last.ident == "Stream" => self.0.push(last.ident.clone()),
            _ => syn::visit_mut::visit_type_param_bound_mut(self, bound),
        }
    }

    /// A returned closure makes its values in a later call.
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}
}

fn future_output(bound: &TypeParamBound) -> Option<&Type> {
    let TypeParamBound::Trait(bound) = bound else {
        return None;
    };
    arguments(bound.path.segments.last()?, "Future").find_map(|argument| match argument {
        GenericArgument::AssocType(AssocType { ident, ty, .. }) if ident == "Output" => Some(ty),
        _ => None,
    })
}

/// `T` in `name<T>`, with any path before the name.
pub(super) fn only_argument<'a>(outer: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = plain_type(outer) else {
        return None;
    };
    arguments(path.path.segments.last()?, name).find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

fn arguments<'a>(segment: &'a PathSegment, name: &str) -> impl Iterator<Item = &'a GenericArgument> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) if segment.ident == name => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten()
}

pub(super) fn plain_type(mut outer: &Type) -> &Type {
    loop {
        outer = match outer {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        }
    }
}

/// The block of a body that is only `async move { … }` or `Box::pin(async move { … })`, and the `Box::pin`.
fn lone_async_block(function: &Function, is_boxed: bool) -> Option<(Option<Expr>, Block)> {
    let tokens = function.body.as_ref()?.tokens.clone();
    let mut statements = Block::parse_within.parse2(tokens).ok()?;
    let only = statements.pop().filter(|_| statements.is_empty())?;
    match only {
        Stmt::Expr(Expr::Call(mut call), None) if is_boxed && call.attrs.is_empty() && is_box_pin(&call.func) => {
            let argument = call.args.pop().filter(|_| call.args.is_empty())?;
            Some((Some(*call.func), async_block(argument)?))
        }
        Stmt::Expr(expression, None) if !is_boxed => Some((None, async_block(expression)?)),
        _ => None,
    }
}

fn async_block(expression: Expr) -> Option<Block> {
    match expression {
        Expr::Async(block) if block.capture.is_some() && block.attrs.is_empty() => Some(block.block),
        _ => None,
    }
}

fn is_box_pin(function: &Expr) -> bool {
    let Expr::Path(path) = function else {
        return false;
    };
    let mut segments = path.path.segments.iter().rev().map(|segment| &segment.ident);
    segments.next().is_some_and(|name| name == "pin") && segments.next().is_some_and(|name| name == "Box")
}

fn is_async_trait(function: &Function) -> bool {
    let is_mark =
        |param: &GenericParam| matches!(param, GenericParam::Lifetime(l) if l.lifetime.ident == "async_trait");
    function.signature.generics.params.iter().any(is_mark)
}

// Input:
//     let __self = self;
//     let Path(id) = { let __arg1 = __arg1; __arg1 };
//     let __ret: T = { body };
//     #[allow(unreachable_code)]
//     __ret
//
// Output:
//     the first two statements, and `{ body }`
//
// For a fn that returns nothing, `let _: () = { body };` is the last statement.
fn split_prelude(block: &Block) -> Option<(Vec<Stmt>, Block)> {
    let mut statements = block.stmts.clone();
    let mut last = statements.pop()?;
    if matches!(&last, Stmt::Expr(Expr::Path(path), None) if path.path.is_ident("__ret")) {
        last = statements.pop()?;
    }
    let Stmt::Local(Local { pat: Pat::Type(typed), init: Some(init), .. }) = last else {
        return None;
    };
    let is_result = match &*typed.pat {
        Pat::Ident(pattern) => pattern.ident == "__ret",
        Pat::Wild(_) => true,
        _ => false,
    };
    match *init.expr {
        Expr::Block(body) if is_result && body.label.is_none() && body.attrs.is_empty() => {
            Some((statements, body.block))
        }
        _ => None,
    }
}

/// The type with each `impl Trait` as `_`: it can't be named inside the body.
fn without_impl(mut output: Type) -> Type {
    Inferred.visit_type_mut(&mut output);
    in_one_piece(output)
}

struct Inferred;

impl VisitMut for Inferred {
    fn visit_type_mut(&mut self, node: &mut Type) {
        if let Type::ImplTrait(hidden) = node {
            *node =
                Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token: syn::Token![_](hidden.impl_token.span) });
        } else {
            syn::visit_mut::visit_type_mut(self, node);
        }
    }

    fn visit_assoc_const_mut(&mut self, _: &mut AssocConst) {}
}

/// `Pin<Box<dyn Future<Output = T> + Send + '_>>`: the body may borrow the guard, which lives less long than the fn promised for its own
/// future.
fn with_inferred_lifetime(boxed: &Type) -> Type {
    let mut boxed = boxed.clone();
    ShortLived.visit_type_mut(&mut boxed);
    boxed
}

struct ShortLived;

impl VisitMut for ShortLived {
    fn visit_type_trait_object_mut(&mut self, object: &mut syn::TypeTraitObject) {
        let bounds = std::mem::take(&mut object.bounds);
        object.bounds = bounds.into_iter().filter(|bound| !matches!(bound, TypeParamBound::Lifetime(_))).collect();
        let span = object.bounds.span();
        object.bounds.push(TypeParamBound::Lifetime(Lifetime::new("'_", span)));
        // Does not visit the output: a trait object there keeps its lifetime.
    }
}
