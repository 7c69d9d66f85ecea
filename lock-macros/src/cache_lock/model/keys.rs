//! Several keys: the value of `keys = EXPR`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, FnArg, GenericParam, Ident, Pat, Signature, Stmt, Token, Type, TypeParamBound, WherePredicate};

use super::key::{Key, of_expression};
use super::shape::{only_argument, plain_type};
use super::{Options, Shape, plain, quoted};
use crate::cache_lock::parse::{Function, Written};
use crate::mistakes::Mistakes;

/// The value of `keys = EXPR`.
pub(in crate::cache_lock) enum Keys {
    /// `[from, to]`: each key is borrowed by itself.
    Listed(Vec<Key>, Span),
    /// A place, such as `ids` or `self.ids`, is borrowed and not moved.
    Place(TokenStream),
    /// An argument that is an iterator, which the keys use up.
    Iterator(Ident),
    /// A value, such as `ids.iter()`.
    Value(TokenStream),
}

impl Keys {
    /// `keys` stands alone: next to a `key` it would be unclear whether that is one more lock.
    pub(super) fn read(
        option: Written,
        options: &mut Options,
        function: &Function,
        shape: Option<&Shape>,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        if options.take("key").is_some() {
            mistakes.at(&option.name, "`key` is one lock and `keys` are several: keep one of the two options");
        }
        if let Some(mark) = function.marks.first() {
            mistakes.at(&mark.attribute, "`keys = …` names the keys already: remove this mark, or the option");
        }
        let Some(written) = option.value else {
            mistakes.at(&option.name, "`keys` lacks its value: write `keys = [from, to]`");
            return None;
        };
        let advice = match plain(&written) {
            Expr::Array(array) if array.elems.is_empty() => "an empty list names nothing: write `keys = [from, to]`",
            Expr::Array(array) => {
                quoted::check("keys", &written, function, shape, mistakes);
                return Some(Self::Listed(array.elems.iter().map(of_expression).collect(), written.span()));
            }
            Expr::Tuple(_) => {
                "a tuple is one key of several parts: for several locks write a list, `keys = [from, to]`"
            }
            Expr::Closure(_) => "the keys are the values themselves: write `keys = [from, to]`, without a closure",
            Expr::Lit(_) => "`keys` takes several keys, such as `keys = [from, to]`: for one lock write `key = …`",
            place @ (Expr::Path(_) | Expr::Field(_) | Expr::Index(_)) => {
                check_is_list(place, &function.signature, mistakes);
                return Some(of_place(place, &function.signature));
            }
            value => {
                return Some(match moved_argument(value, &function.signature) {
                    Some(argument) => Self::Iterator(argument),
                    None => Self::Value(quote!(#value)),
                });
            }
        };
        mistakes.at(&written, advice);
        None
    }
}

/// The argument that `{ ids }` moves: the body can't use it afterwards.
fn moved_argument(value: &Expr, signature: &Signature) -> Option<Ident> {
    let Expr::Block(block) = value else { return None };
    let (None, [], [Stmt::Expr(Expr::Path(path), None)]) = (&block.label, &*block.attrs, &*block.block.stmts) else {
        return None;
    };
    path.path.get_ident().filter(|name| type_of(name, signature).is_some()).cloned()
}

/// The argument that a value consumes, as `ids.into_iter()` does.
pub(super) fn used_up_argument(value: &TokenStream) -> Option<Ident> {
    let mut value = syn::parse2::<Expr>(value.clone()).ok()?;
    loop {
        let Expr::MethodCall(call) = value else { return None };
        match &*call.receiver {
            Expr::Path(path) if call.method == "into_iter" => return path.path.get_ident().cloned(),
            receiver => value = receiver.clone(),
        }
    }
}

/// Without this check, the compiler would report an argument whose type name is no list as "not an iterator".
fn check_is_list(place: &Expr, signature: &Signature, mistakes: &mut Mistakes) {
    let name = if let Expr::Path(path) = place { path.path.get_ident() } else { None };
    if let Some(name) = name
        && type_of(name, signature).is_some_and(is_one_key)
    {
        mistakes.at(
            name,
            format!("`{name}` is one key: write `key = {name}`, or a list of keys, such as `keys = [{name}]`"),
        );
    }
}

fn is_one_key(argument: &Type) -> bool {
    match plain_type(argument) {
        Type::Reference(reference) => is_one_key(&reference.elem),
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| ONE_KEY.split_whitespace().any(|name| last.ident == name))
        }
        _ => false,
    }
}

/// Types whose values are one key.
const ONE_KEY: &str = "
    u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize bool char str String Uuid IpAddr Ipv4Addr Ipv6Addr SocketAddr SocketAddrV4
    SocketAddrV6
";

/// A place is borrowed. Two kinds of arguments can't be read through a borrow: a `&mut`, which is reborrowed, and an iterator, which is
/// used up.
fn of_place(place: &Expr, signature: &Signature) -> Keys {
    let name = if let Expr::Path(path) = place { path.path.get_ident() } else { None };
    let Some((name, argument)) = name.and_then(|name| Some((name, plain_type(type_of(name, signature)?)))) else {
        return Keys::Place(quote!(#place));
    };
    match argument {
        _ if is_used_up(argument, signature) => Keys::Iterator(name.clone()),
        Type::Reference(reference) if reference.mutability.is_some() => Keys::Place(quote!(*#name)),
        _ => Keys::Place(quote!(#place)),
    }
}

fn type_of<'a>(name: &Ident, signature: &'a Signature) -> Option<&'a Type> {
    signature.inputs.iter().find_map(|argument| match argument {
        FnArg::Typed(typed) if matches!(&*typed.pat, Pat::Ident(pattern) if pattern.ident == *name) => Some(&*typed.ty),
        _ => None,
    })
}

/// `Range<u64>` and `RangeInclusive<u64>` are iterators themselves, and can't be read through a borrow.
fn is_range(argument: &Type) -> bool {
    ["Range", "RangeInclusive"].iter().any(|name| only_argument(argument, name).is_some())
}

/// `vec::IntoIter<u64>`, and that of other collections.
fn is_owning_iterator(argument: &Type) -> bool {
    matches!(argument, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "IntoIter"))
}

/// Whether only the argument itself yields the keys.
fn is_used_up(argument: &Type, signature: &Signature) -> bool {
    is_range(argument) || is_owning_iterator(argument) || is_iterator(argument, signature)
}

/// Whether the type is only known to be iterable: `impl Iterator<…>`, a generic type with such a bound, and a box of, or a reference to,
/// such a `dyn Iterator<…>`.
fn is_iterator(argument: &Type, signature: &Signature) -> bool {
    let is_any = |of: &Type| matches!(plain_type(of), Type::TraitObject(any) if has_iterator(&any.bounds));
    match argument {
        Type::ImplTrait(hidden) => has_iterator(&hidden.bounds),
        Type::Reference(reference) => reference.mutability.is_some() && is_any(&reference.elem),
        boxed if only_argument(boxed, "Box").is_some_and(is_any) => true,
        Type::Path(path) => path.path.get_ident().is_some_and(|name| {
            let mut parameters = signature.generics.params.iter();
            let mut clauses = signature.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
            let is_named = |of: &Type| matches!(of, Type::Path(path) if path.path.is_ident(name));
            parameters.any(|parameter| {
                matches!(parameter, GenericParam::Type(generic) if generic.ident == *name && has_iterator(&generic.bounds))
            }) || clauses.any(|clause| {
                matches!(clause, WherePredicate::Type(of) if is_named(&of.bounded_ty) && has_iterator(&of.bounds))
            })
        }),
        _ => false,
    }
}

/// Matches `Iterator`, `IntoIterator`, `ExactSizeIterator` and similar traits.
fn has_iterator(bounds: &Punctuated<TypeParamBound, Token![+]>) -> bool {
    bounds.iter().any(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return false };
        bound.path.segments.last().is_some_and(|last| last.ident.to_string().ends_with("Iterator"))
    })
}
