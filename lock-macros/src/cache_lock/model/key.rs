//! The key: an expression, or the marked arguments.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, ExprTuple, FnArg, Ident, LitStr, Member, Meta, Token};

use super::{Keys, Options, Shape, bindings, plain, quoted, text};
use crate::cache_lock::parse::{Function, Mark};
use crate::mistakes::Mistakes;

/// What the lock's name is made of.
pub(in crate::cache_lock) enum Key {
    /// A place or a value, borrowed where it is used.
    One(TokenStream),
    /// Each part is borrowed by itself: a tuple of the values would move them.
    Tuple(Vec<Key>, Span),
    /// Several keys, one lock for each.
    Several(Keys),
}

/// The option or the marks, not both: their order would be unclear.
pub(super) fn key(
    options: &mut Options,
    function: &Function,
    shape: Option<&Shape>,
    mistakes: &mut Mistakes,
) -> Option<Key> {
    if let Some(several) = options.take("keys") {
        return Keys::read(several, options, function, shape, mistakes).map(Key::Several);
    }
    let is_given = options.written.iter().any(|option| option.name == "key");
    let written = options.value("key", "id", mistakes);
    check_marks_differ(&function.marks, mistakes);
    let marked: Vec<Option<Key>> =
        (function.marks.iter()).map(|mark| mistakes.ok(marked(mark, function, shape))).collect();
    match (&written, function.marks.first()) {
        (Some(_), Some(mark)) => {
            mistakes.at(&mark.attribute, "`key = …` names the key already: remove this mark, or the option");
            None
        }
        (Some(written), None) => {
            check_written(written, mistakes);
            quoted::check("key", written, function, shape, mistakes);
            Some(of_expression(written))
        }
        (None, Some(mark)) => {
            let mut marked: Vec<Key> = marked.into_iter().collect::<Option<_>>()?;
            if marked.len() == 1 { marked.pop() } else { Some(Key::Tuple(marked, mark.attribute.span())) }
        }
        (None, None) if is_given || options.has_unknown => None,
        (None, None) => {
            mistakes.add(syn::Error::new(
                function.place,
                "what does the lock protect? write `key = id`, or mark an argument with `#[locked_object]`; \
                 `key = \"all\"` is one lock for every call",
            ));
            None
        }
    }
}

/// Several fields of one argument are several parts.
fn check_marks_differ(marks: &[Mark], mistakes: &mut Mistakes) {
    let mut named = HashSet::new();
    for mark in marks {
        if !named.insert((mark.argument, mark.attribute.to_token_stream().to_string())) {
            mistakes.at(&mark.attribute, "this part of the key is named twice: remove one of the marks");
        }
    }
}

fn check_written(written: &Expr, mistakes: &mut Mistakes) {
    match plain(written) {
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            mistakes.at(written, "`()` names nothing: for one lock for every call write `key = \"all\"`");
        }
        Expr::Array(_) => mistakes.at(
            written,
            "an array is not one key: for several locks write `keys = …`, and for one lock of several parts a tuple",
        ),
        Expr::Closure(_) => mistakes.at(written, "the key is the value itself: write `key = id`, without a closure"),
        other => {
            if text(other).is_some_and(|text| text.value().is_empty()) {
                mistakes.at(written, "an empty text names nothing: for one lock for every call write `key = \"all\"`");
            }
        }
    }
}

pub(super) fn of_expression(written: &Expr) -> Key {
    match plain(written) {
        Expr::Tuple(ExprTuple { elems, .. }) => Key::Tuple(elems.iter().map(of_expression).collect(), written.span()),
        other => Key::One(quote!(#other)),
    }
}

fn marked(mark: &Mark, function: &Function, shape: Option<&Shape>) -> syn::Result<Key> {
    let fields = if mark.is_complex { fields(mark)? } else { no_fields(mark)? };
    let base = match function.signature.inputs.get(mark.argument) {
        Some(FnArg::Receiver(receiver)) => {
            let this = receiver.self_token;
            quote!(#this)
        }
        Some(argument) => {
            let variable = variable(mark, argument, shape)?;
            quote!(#variable)
        }
        None => TokenStream::new(),
    };
    Ok(Key::One(fields.into_iter().fold(base, |place, field| {
        let span = field.span();
        quote_spanned!(span=> #place.#field)
    })))
}

/// The one variable of the marked argument: `id` in `Path(id): Path<u64>`.
fn variable(mark: &Mark, argument: &FnArg, shape: Option<&Shape>) -> syn::Result<Ident> {
    let mut variables = bindings(argument);
    if let (Some(shape), [renamed]) = (shape, variables.as_slice())
        && let Some(pattern) = shape.pattern_behind(renamed)
    {
        variables = super::bindings::bindings_of_pattern(pattern);
    }
    let advice = match variables.pop() {
        Some(variable) if variables.is_empty() => return Ok(variable),
        Some(_) => "this argument has several variables: say which is the key with `key = …` instead of the mark",
        None => "this argument has no name that could be the key: give it one",
    };
    Err(syn::Error::new_spanned(&mark.attribute, advice))
}

fn no_fields(mark: &Mark) -> syn::Result<Vec<Member>> {
    match &mark.attribute.meta {
        Meta::Path(_) => Ok(Vec::new()),
        _ => Err(syn::Error::new_spanned(
            &mark.attribute,
            "`#[locked_object]` stands alone: for a field write `#[locked_complex_object(field = \"order.id\")]`",
        )),
    }
}

/// `field = "order.id"` or `field = order.id`: the parts of the path, with its span for the error that the compiler finds no such field.
fn fields(mark: &Mark) -> syn::Result<Vec<Member>> {
    let read = |input: ParseStream| {
        let name: Ident = input.parse()?;
        if name != "field" {
            return Err(syn::Error::new(name.span(), "expected `field`"));
        }
        input.parse::<Token![=]>()?;
        let path: Expr = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        Ok(path)
    };
    let path = mark.attribute.parse_args_with(read).map_err(|_| {
        syn::Error::new_spanned(
            &mark.attribute,
            "write `#[locked_complex_object(field = \"order.id\")]`, with the path of the field that is the key",
        )
    })?;
    // `order . id`, and `pair . 0 . 1`, where `0.1` is one token.
    let written = text(&path).map_or_else(|| path.to_token_stream().to_string().replace(' ', ""), LitStr::value);
    let place = |name: &str| match text(&path) {
        // Not the user's span: the compiler would propose to replace the whole path by a field that looks like its end.
        Some(text) if written.contains('.') => text.span().resolved_at(Span::mixed_site()),
        Some(text) => text.span(),
        None => span_of(name, path.to_token_stream()).unwrap_or_else(|| path.span()),
    };
    let member = |name: &str| {
        let mut member =
            syn::parse_str::<Member>(name).map_err(|_| syn::Error::new(path.span(), not_a_field(name, &written)))?;
        match &mut member {
            Member::Named(field) => field.set_span(place(name)),
            Member::Unnamed(index) => index.span = place(name),
        }
        Ok(member)
    };
    written.split('.').map(member).collect()
}

fn span_of(name: &str, path: TokenStream) -> Option<Span> {
    path.into_iter().find(|token| token.to_string() == name).map(|token| token.span())
}

fn not_a_field(name: &str, path: &str) -> String {
    if name.contains('(') {
        return format!("the path names fields only: for a call write `key = argument.{path}` instead of the mark");
    }
    format!("`{name}` is not the name of a field: write the path as in `field = \"order.id\"`")
}
