//! An `impl` block. Its fns stay as they are, unread, but for the attributes on them.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Path, Token};

use super::{Written, is_cache_lock};
use crate::mistakes::Mistakes;

pub(in crate::cache_lock) struct Block {
    pub(in crate::cache_lock) place: Span,
    /// All before the braces.
    head: TokenStream,
    braces: Group,
}

impl Block {
    /// `None` for another item.
    pub(super) fn read(tokens: &TokenStream) -> Option<Self> {
        let place = impl_token.parse2(tokens.clone()).ok()?;
        let mut head: Vec<TokenTree> = tokens.clone().into_iter().collect();
        match head.pop() {
            Some(TokenTree::Group(braces)) if braces.delimiter() == Delimiter::Brace => {
                Some(Self { place, head: head.into_iter().collect(), braces })
            }
            _ => None,
        }
    }

    /// The options of each `#[cache_lock(…)]` in the block. Their mistakes are told when the fn is expanded.
    pub(in crate::cache_lock) fn options_of_fns(&self) -> Vec<Vec<Written>> {
        let mut found = Vec::new();
        self.with_options(|options| {
            found.push(super::options(options.clone(), &mut Mistakes::default()));
            options
        });
        found
    }

    /// The block with other options on its fns.
    pub(in crate::cache_lock) fn with_options(
        &self,
        mut change: impl FnMut(TokenStream) -> TokenStream,
    ) -> TokenStream {
        let mut after_pound = false;
        let inside = self.braces.stream().into_iter().map(|token| {
            let token = match token {
                TokenTree::Group(group) if after_pound && group.delimiter() == Delimiter::Bracket => {
                    TokenTree::Group(with_options(&group, &mut change).unwrap_or(group))
                }
                token => token,
            };
            after_pound = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
            token
        });
        let mut braces = Group::new(Delimiter::Brace, inside.collect());
        braces.set_span(self.braces.span());
        let mut tokens = self.head.clone();
        tokens.extend([TokenTree::Group(braces)]);
        tokens
    }
}

/// The place of `impl`.
fn impl_token(input: ParseStream) -> syn::Result<Span> {
    input.call(Attribute::parse_outer)?;
    while !input.peek(Token![impl]) && !input.peek(Token![fn]) {
        // `default`, `unsafe`
        input.parse::<Ident>().map(drop).or_else(|_| input.parse::<Token![unsafe]>().map(drop))?;
    }
    let token: Token![impl] = input.parse()?;
    input.parse::<TokenStream>()?;
    Ok(token.span)
}

/// `None` for another attribute.
fn with_options(brackets: &Group, change: &mut impl FnMut(TokenStream) -> TokenStream) -> Option<Group> {
    let read = |input: ParseStream| {
        let path = input.call(Path::parse_mod_style)?;
        Ok((path, input.parse::<TokenStream>()?))
    };
    let (path, arguments) = read.parse2(brackets.stream()).ok().filter(|(path, _)| is_cache_lock(path))?;
    let mut arguments = arguments.into_iter();
    let options = match (arguments.next(), arguments.next()) {
        (None, _) => TokenStream::new(),
        (Some(TokenTree::Group(group)), None) => group.stream(),
        _ => return None,
    };
    let mut inside = path.to_token_stream();
    inside.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, change(options)))]);
    let mut changed = Group::new(Delimiter::Bracket, inside);
    changed.set_span(brackets.span());
    Some(changed)
}
