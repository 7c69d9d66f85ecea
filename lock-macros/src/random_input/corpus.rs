//! Uses of the macros from the other tests, and changes to a few of their tokens.

use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use proptest::prelude::*;
use proptest::sample::Index;

use super::tokens::{Word, parts, stream, word, word_of};

/// An attribute's arguments and its item, or an item alone.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) options: TokenStream,
    pub(super) item: TokenStream,
}

const SOURCES: [&str; 7] = [
    "src/snapshots.rs",
    "src/trait_snapshots.rs",
    "../tests/compile_fail/ui",
    "../tests/tests/macros/shapes",
    "../tests/tests/macros/behaviour",
    "../tests/tests/macros/futures.rs",
    "../tests/tests/macros/proxies",
];

thread_local! {
    // Per thread: tokens are not `Send`.
    static USES: Vec<Use> = SOURCES.iter().flat_map(|source| uses_in(Path::new(source))).collect();
}

pub(super) fn uses() -> Vec<Use> {
    USES.with(Clone::clone)
}

pub(super) fn pick(index: Index) -> Use {
    at(index.index(usize::MAX))
}

/// Any number selects a use.
pub(super) fn at(number: usize) -> Use {
    USES.with(|uses| {
        assert!(uses.len() > 150, "only {} uses of the macros found", uses.len());
        uses[number % uses.len()].clone()
    })
}

fn uses_in(path: &Path) -> Vec<Use> {
    if path.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        return entries.iter().flat_map(|entry| uses_in(entry)).collect();
    }
    let mut uses = Vec::new();
    if path.extension().is_some_and(|extension| extension == "rs") {
        collect(fs::read_to_string(path).unwrap().parse().unwrap(), &mut uses);
    }
    uses
}

/// Collects the tokens after `#[cache_lock…]` and `#[derive(…)]`, up to the item's braces or `;`, and the content of a `quote! { … }`.
fn collect(tokens: TokenStream, uses: &mut Vec<Use>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        let before: Vec<String> = tokens[i.saturating_sub(2)..i].iter().map(ToString::to_string).collect();
        if before == ["quote", "!"] && group.delimiter() == Delimiter::Brace {
            uses.push(Use { options: "key = id".parse().unwrap(), item: group.stream() });
        }
        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
        if let ([TokenTree::Ident(name), rest @ ..], Delimiter::Bracket) = (inside.as_slice(), group.delimiter())
            && (name == "cache_lock" || name == "derive")
        {
            let options = match rest {
                [TokenTree::Group(options)] => options.stream(),
                _ => TokenStream::new(),
            };
            let ends = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(punct) => punct.as_char() == ';',
                _ => false,
            };
            let below = &tokens[i + 1..];
            let end = below.iter().position(ends).map_or(below.len(), |end| end + 1);
            uses.push(Use { options, item: below[..end].iter().cloned().collect() });
        }
        collect(group.stream(), uses);
    }
}

/// The stream with one token changed per four bytes: which one, how, and to what.
pub(super) fn edited(tokens: TokenStream, edits: &[[u8; 4]]) -> TokenStream {
    let mut parts = parts(tokens);
    for [place, how, kind, choice] in edits {
        let place = usize::from(*place) % (parts.len() + 1);
        match how % 3 {
            0 => parts.insert(place, word_of(*kind, *choice).part()),
            _ if place == parts.len() => {}
            1 => parts[place] = word_of(*kind, *choice).part(),
            _ => drop(parts.remove(place)),
        }
    }
    stream(parts)
}

/// A change to a stream, at a place that is taken modulo its length.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Delete(Index),
    Duplicate(Index),
    Swap(Index, Index),
    Move(Index, Index),
    Insert(Index, Word),
    Replace(Index, Word),
}

pub(super) fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        any::<Index>().prop_map(Change::Delete),
        any::<Index>().prop_map(Change::Duplicate),
        any::<(Index, Index)>().prop_map(|(one, other)| Change::Swap(one, other)),
        any::<(Index, Index)>().prop_map(|(from, to)| Change::Move(from, to)),
        (any::<Index>(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        (any::<Index>(), word()).prop_map(|(at, word)| Change::Replace(at, word)),
    ];
    prop::collection::vec(change, 0..most)
}

pub(super) fn changed(tokens: TokenStream, changes: &[Change]) -> TokenStream {
    let mut parts = parts(tokens);
    for change in changes {
        if parts.is_empty() {
            break;
        }
        let at = |index: &Index| index.index(parts.len());
        match change {
            Change::Delete(place) => drop(parts.remove(at(place))),
            Change::Duplicate(place) => {
                let place = at(place);
                parts.insert(place, parts[place].clone());
            }
            Change::Swap(one, other) => {
                let (one, other) = (at(one), at(other));
                parts.swap(one, other);
            }
            Change::Move(from, to) => {
                let (from, to) = (at(from), at(to));
                let part = parts.remove(from);
                parts.insert(to, part);
            }
            Change::Insert(place, word) => {
                let place = at(place);
                parts.insert(place, word.part());
            }
            Change::Replace(place, word) => {
                let place = at(place);
                parts[place] = word.part();
            }
        }
    }
    stream(parts)
}
