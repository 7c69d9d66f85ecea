//! What was written: the options of the attribute, and the item below it.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, FnArg, Ident, LitStr, Meta, Path, Signature, Token, Visibility, braced, token};

use crate::mistakes::Mistakes;
pub(super) use block::Block;
pub(super) use interface::{AboveAsyncTrait, Interface, Member, Method};

mod block;
mod interface;

pub(super) enum Item {
    Function(Box<Function>),
    Interface(Box<Interface>),
    AboveAsyncTrait(AboveAsyncTrait),
    Block(Block),
}

/// `name = value`, or `name` alone.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) name: Ident,
    pub(super) value: Option<Expr>,
}

/// The fn below the attribute, without the marks on its arguments. Its body is not parsed.
pub(super) struct Function {
    /// The attribute's span, for a mistake that is not about one of its tokens.
    pub(super) place: Span,
    pub(super) attributes: Vec<Attribute>,
    pub(super) visibility: Visibility,
    pub(super) defaultness: Option<Token![default]>,
    pub(super) signature: Signature,
    pub(super) marks: Vec<Mark>,
    pub(super) body: Option<Body>,
    /// The `;` of a fn without a body, or whatever else follows.
    pub(super) rest: TokenStream,
}

pub(super) struct Body {
    pub(super) brace: token::Brace,
    pub(super) tokens: TokenStream,
}

/// `#[locked_object]` or `#[locked_complex_object(...)]` on an argument.
#[derive(Clone)]
pub(super) struct Mark {
    pub(super) attribute: Attribute,
    pub(super) is_complex: bool,
    /// The argument's index, counting `self`.
    pub(super) argument: usize,
}

/// Reads the options one by one. An unreadable one is a mistake, and reading continues behind the next comma.
pub(super) fn options(tokens: TokenStream, mistakes: &mut Mistakes) -> Vec<Written> {
    let mut options = Vec::new();
    let parser = |input: ParseStream| {
        while !input.is_empty() {
            match option(input) {
                Ok(option) => options.push(option),
                Err(mistake) => {
                    mistakes.add(mistake);
                    skip_to_comma(input)?;
                }
            }
            let comma = end_of_option(input);
            mistakes.ok(comma);
        }
        Ok(())
    };
    let outcome = parser.parse2(tokens);
    mistakes.ok(outcome);
    options
}

fn option(input: ParseStream) -> syn::Result<Written> {
    if let Ok(text) = input.fork().parse::<LitStr>() {
        return Err(syn::Error::new(text.span(), format!("an option has a name: write `prefix = {}`", text.token())));
    }
    if !input.peek(Ident::peek_any) {
        return Err(input.error("expected an option, such as `key = id` or `timeout_ms = 500`"));
    }
    let name = input.call(Ident::parse_any)?;
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(Written { name, value: None });
    }
    if !input.peek(Token![=]) || input.peek(Token![==]) {
        return Err(input.error(format!("write `{name} = …`")));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(syn::Error::new(name.span(), format!("`{name} =` lacks its value")));
    }
    let last = input.cursor().token_stream().into_iter().last();
    let value = input.parse().map_err(|mistake: syn::Error| match last {
        // The end of the options has no span of its own: the compiler would show the whole attribute.
        Some(last) if mistake.to_string().starts_with("unexpected end of input") => {
            syn::Error::new(last.span(), format!("the value of `{name}` ends too early"))
        }
        _ => mistake,
    })?;
    Ok(Written { name, value: Some(value) })
}

fn end_of_option(input: ParseStream) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        input.parse::<Option<Token![,]>>()?;
        return Ok(());
    }
    let mistake = input.error("expected `,` between two options");
    if !input.peek(Ident::peek_any) {
        skip_to_comma(input)?;
        input.parse::<Option<Token![,]>>()?;
    }
    Err(mistake)
}

fn skip_to_comma(input: ParseStream) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

pub(super) fn item(tokens: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Item> {
    if interface::starts(tokens.clone()) {
        if let Some(above) = AboveAsyncTrait::read(tokens.clone()) {
            return Ok(Item::AboveAsyncTrait(above));
        }
        return interface::read(tokens, mistakes).map(|interface| Item::Interface(Box::new(interface)));
    }
    if let Some(block) = Block::read(&tokens) {
        return Ok(Item::Block(block));
    }
    read_function.parse2(tokens).map(|function| Item::Function(Box::new(function)))
}

/// Whether the path ends with the attribute's name.
fn is_cache_lock(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == "cache_lock")
}

/// The predicate and the attributes of `#[cfg_attr(PREDICATE, …)]`.
pub(super) fn conditional(attribute: &Meta) -> Option<(TokenStream, Punctuated<Meta, Token![,]>)> {
    let Meta::List(list) = attribute else { return None };
    let read = |input: ParseStream| {
        let mut predicate = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            input.parse::<TokenTree>()?.to_tokens(&mut predicate);
        }
        input.parse::<Token![,]>()?;
        Ok((predicate, Punctuated::parse_terminated(input)?))
    };
    list.parse_args_with(read).ok().filter(|_| list.path.is_ident("cfg_attr"))
}

/// The `cache_lock` in `#[cfg_attr(PREDICATE, cache_lock(…))]`, as a mistake: on a block or a trait it is not known yet whether it applies.
fn conditional_mark(attribute: &Meta) -> Option<syn::Error> {
    let (_, attributes) = conditional(attribute)?;
    attributes.iter().find_map(|attribute| {
        is_cache_lock(attribute.path())
            .then(|| {
                syn::Error::new_spanned(
                    attribute.path(),
                    "whether this counts is not known here: write the fn twice, under `#[cfg(…)]` with `#[cache_lock(…)]`, and \
                     under `#[cfg(not(…))]` without",
                )
            })
            .or_else(|| conditional_mark(attribute))
    })
}

fn read_function(input: ParseStream) -> syn::Result<Function> {
    let attributes = input.call(Attribute::parse_outer)?;
    let visibility = input.parse()?;
    let defaultness = input.parse()?;
    if !starts_a_fn(input) {
        return Err(input.error(
            "`#[cache_lock]` goes on a fn, or above the fns' `impl` block or trait: put it above each fn that needs the lock",
        ));
    }
    let mut signature: Signature = input.parse()?;
    let marks = take_marks(&mut signature);
    let body = if input.peek(token::Brace) {
        let content;
        let brace = braced!(content in input);
        let tokens = content.parse()?;
        Some(Body { brace, tokens })
    } else {
        None
    };
    let rest = input.parse()?;
    Ok(Function { place: Span::call_site(), attributes, visibility, defaultness, signature, marks, body, rest })
}

fn starts_a_fn(input: ParseStream) -> bool {
    // Each word by its own type: a `TokenTree` could be everything that a macro's `$item` contains.
    let ahead = input.fork();
    while ahead.parse::<Token![const]>().is_ok()
        || ahead.parse::<Token![async]>().is_ok()
        || ahead.parse::<Token![unsafe]>().is_ok()
        || ahead.parse::<Token![extern]>().is_ok()
        || ahead.parse::<LitStr>().is_ok()
    {}
    ahead.peek(Token![fn])
}

/// Removes the marks from the arguments: the compiler does not know these attributes.
fn take_marks(signature: &mut Signature) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (argument, input) in signature.inputs.iter_mut().enumerate() {
        let attributes = match input {
            FnArg::Receiver(receiver) => &mut receiver.attrs,
            FnArg::Typed(typed) => &mut typed.attrs,
        };
        attributes.retain(|attribute| {
            let is_complex = attribute.path().is_ident("locked_complex_object");
            let is_mark = is_complex || attribute.path().is_ident("locked_object");
            if is_mark {
                marks.push(Mark { attribute: attribute.clone(), is_complex, argument });
            }
            !is_mark
        });
    }
    marks
}

impl ToTokens for Written {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.name.to_tokens(tokens);
        if let Some(value) = &self.value {
            Token![=](self.name.span()).to_tokens(tokens);
            value.to_tokens(tokens);
        }
    }
}

impl Function {
    /// Everything before the body, with this signature.
    pub(super) fn head(&self, signature: &Signature) -> TokenStream {
        let Self { attributes, visibility, defaultness, .. } = self;
        quote::quote!(#(#attributes)* #visibility #defaultness #signature)
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.head(&self.signature).to_tokens(tokens);
        if let Some(body) = &self.body {
            body.brace.surround(tokens, |inside| body.tokens.to_tokens(inside));
        }
        self.rest.to_tokens(tokens);
    }
}
