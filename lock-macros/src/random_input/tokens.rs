//! Tokens in any order, and how they become a stream.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use proptest::prelude::*;
use proptest::sample::select;

use super::options::among;

/// A token, or one end of a group. Any order makes a stream: an end that closes nothing is skipped, and open groups are closed at the end.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Open(Delimiter),
    Close,
    Token(TokenTree),
}

/// A part in a form that is `Send`, which tokens are not.
#[derive(Clone, Debug)]
pub(super) enum Word {
    Open(Delimiter),
    Close,
    Name(&'static str),
    Raw(&'static str),
    Punct(char, Spacing),
    Written(&'static str),
    Text(String),
    Number(u128, &'static str),
}

const NAMES: &str = "
    as async await break const continue crate default dyn else enum extern false fn for if impl in let loop match
    mod move mut pub ref return self Self static struct super trait true type union unsafe use where while yield try
    _ macro auto raw a id é Future Output Pin Box Result u64 __self __ret pin async_trait prefix key timeout_ms
    timeout expire_s expire renew on_fail on_lost manager guard fenced locked_object locked_complex_object field
    lock_key cfg doc
";

const RAW: &[&str] = &["key", "fn", "async", "é", "prefix"];

const PUNCTUATION: &str = "=,.:;#!?&|+-*/<>'@$%^~";

const LITERALS: &str = r##"
    0  1  2000  1u8  1_000  0x1F  0b1  0o7  1e3  1.5  2f32  0_u64  1ms  'a'  '\''  '\u{1F600}'  b'x'  ""  "cancel"
    "continue"  "2s"  "1500ms"  "order.id"  "a..b"  "0.1"  "("  "a b"  "{"  "\0"  "é"suffix  b"x"  c"x"  r"raw"
    r#"r"aw"#  "C"  18446744073709551615  18446744073709551616  340282366920938463463374607431768211456
"##;

const DELIMITERS: [Delimiter; 4] = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];

pub(super) fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => select(&DELIMITERS[..]).prop_map(Word::Open),
        3 => Just(Word::Close),
        8 => select(NAMES.split_whitespace().collect::<Vec<_>>()).prop_map(Word::Name),
        1 => select(RAW).prop_map(Word::Raw),
        8 => (select(PUNCTUATION.chars().collect::<Vec<_>>()), any::<bool>())
            .prop_map(|(c, joint)| Word::Punct(c, if joint { Spacing::Joint } else { Spacing::Alone })),
        3 => among(LITERALS).prop_map(Word::Written),
        1 => any::<String>().prop_map(Word::Text),
        1 => (any::<u128>(), select(&["", "u64", "i8", "ms", "f64"][..])).prop_map(|(n, s)| Word::Number(n, s)),
    ]
}

/// The word that two bytes stand for.
pub(super) fn word_of(kind: u8, choice: u8) -> Word {
    fn one<T: Clone>(all: impl IntoIterator<Item = T>, choice: u8) -> T {
        let all: Vec<T> = all.into_iter().collect();
        all[usize::from(choice) % all.len()].clone()
    }
    match kind % 8 {
        0 => Word::Open(one(DELIMITERS, choice)),
        1 => Word::Close,
        2..4 => Word::Name(one(NAMES.split_whitespace(), choice)),
        4 => Word::Raw(one(RAW.iter().copied(), choice)),
        5..7 => Word::Punct(one(PUNCTUATION.chars(), choice), if kind < 128 { Spacing::Joint } else { Spacing::Alone }),
        _ => Word::Text(char::from(choice).to_string()),
    }
}

pub(super) fn words(most: usize) -> impl Strategy<Value = Vec<Word>> {
    prop::collection::vec(word(), 0..most)
}

impl Word {
    pub(super) fn part(&self) -> Part {
        let token: TokenTree = match self {
            Self::Open(delimiter) => return Part::Open(*delimiter),
            Self::Close => return Part::Close,
            Self::Name(name) => Ident::new(name, Span::call_site()).into(),
            Self::Raw(name) => Ident::new_raw(name, Span::call_site()).into(),
            Self::Punct(character, spacing) => Punct::new(*character, *spacing).into(),
            Self::Written(literal) => literal.parse::<Literal>().unwrap().into(),
            Self::Text(text) => Literal::string(text).into(),
            Self::Number(number, suffix) => format!("{number}{suffix}").parse::<Literal>().unwrap().into(),
        };
        Part::Token(token)
    }
}

pub(super) fn written(words: &[Word]) -> TokenStream {
    stream(words.iter().map(Word::part))
}

pub(super) fn stream(parts: impl IntoIterator<Item = Part>) -> TokenStream {
    let mut open = Vec::new();
    let mut tokens = TokenStream::new();
    let close = |tokens: &mut TokenStream, (delimiter, before): (Delimiter, TokenStream)| {
        let group = Group::new(delimiter, std::mem::replace(tokens, before));
        tokens.extend([TokenTree::Group(group)]);
    };
    for part in parts {
        match part {
            Part::Open(delimiter) => open.push((delimiter, std::mem::take(&mut tokens))),
            Part::Close => {
                if let Some(group) = open.pop() {
                    close(&mut tokens, group);
                }
            }
            Part::Token(token) => tokens.extend([token]),
        }
    }
    while let Some(group) = open.pop() {
        close(&mut tokens, group);
    }
    tokens
}

pub(super) fn parts(tokens: TokenStream) -> Vec<Part> {
    let mut parts = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                parts.push(Part::Open(group.delimiter()));
                parts.extend(self::parts(group.stream()));
                parts.push(Part::Close);
            }
            token => parts.push(Part::Token(token)),
        }
    }
    parts
}
