//! An `impl` block. Its fns are not parsed, except for their attributes.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Path, Token};

use super::{Written, conditional_mark, is_cache_lock};
use crate::mistakes::Mistakes;

pub(in crate::cache_lock) struct Block {
    pub(in crate::cache_lock) place: Span,
    /// Everything before the braces.
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

    /// The options of each `#[cache_lock(…)]` in the block. Their mistakes are reported when the fn is expanded.
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
        let inside = all_with_options(self.braces.stream(), &mut change);
        let mut tokens = self.head.clone();
        tokens.extend([TokenTree::Group(with_inside(&self.braces, inside))]);
        tokens
    }

    /// Mistakes: fns that the block's options may miss, so that they would take another lock.
    pub(in crate::cache_lock) fn out_of_reach(&self) -> Vec<syn::Error> {
        let mut found = Vec::new();
        let read = |input: ParseStream| {
            input.call(Attribute::parse_inner)?;
            while !input.is_empty() {
                let attributes = input.call(Attribute::parse_outer)?;
                found.extend(attributes.iter().filter_map(|attribute| conditional_mark(&attribute.meta)));
                let item = input.fork();
                if let Ok(name) = item.call(Path::parse_mod_style)
                    && item.peek(Token![!])
                {
                    found.push(syn::Error::new_spanned(
                        name,
                        "the options of the block don't reach the fns that this makes: write them out, or put them into a block of \
                         their own",
                    ));
                }
                skip_item(input)?;
            }
            Ok(())
        };
        // The compiler reports what is not Rust.
        let _ = read.parse2(self.braces.stream());
        found
    }
}

/// Skips to its `;` or its braces.
fn skip_item(input: ParseStream) -> syn::Result<()> {
    while !input.is_empty() {
        match input.parse()? {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => {}
        }
    }
    Ok(())
}

fn all_with_options(tokens: TokenStream, change: &mut impl FnMut(TokenStream) -> TokenStream) -> TokenStream {
    let mut after_pound = false;
    let tokens = tokens.into_iter().map(|token| {
        let token = match token {
            TokenTree::Group(group) if after_pound && group.delimiter() == Delimiter::Bracket => {
                TokenTree::Group(with_options(&group, change).unwrap_or(group))
            }
            // The `$method` of a macro that wrote the block.
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                let inside = all_with_options(group.stream(), change);
                TokenTree::Group(with_inside(&group, inside))
            }
            token => token,
        };
        after_pound = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        token
    });
    tokens.collect()
}

fn with_inside(group: &Group, inside: TokenStream) -> Group {
    let mut changed = Group::new(group.delimiter(), inside);
    changed.set_span(group.span());
    changed
}

/// The span of `impl`.
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
    Some(with_inside(brackets, inside))
}
