//! Texts that were meant as expressions: other libraries read `"#id"`, `"{id}"` or `"id"` as the argument `id`.

use quote::ToTokens;
use syn::{Expr, ExprArray, ExprTuple, Ident, LitStr};

use super::bindings::{bindings, mentions};
use super::{Shape, plain, text};
use crate::cache_lock::parse::Function;
use crate::mistakes::Mistakes;

/// Here a text is taken literally: every call would silently share one lock.
pub(super) fn check(option: &str, written: &Expr, function: &Function, shape: Option<&Shape>, mistakes: &mut Mistakes) {
    let mut names: Vec<String> =
        function.signature.inputs.iter().flat_map(bindings).map(|name| name.to_string()).collect();
    names.extend(shape.and_then(Shape::variables_of_prelude).into_iter().flatten().map(|name| name.to_string()));
    names.extend(function.signature.receiver().map(|_| "self".to_owned()));
    for quoted in texts(written) {
        let mut meant = Meant::read(&quoted.value(), &names);
        for path in &mut meant.paths {
            *path = written_out(path, &names);
        }
        // In `("user", user)` the text tells this key from others.
        meant.paths.retain(|path| meant.has_marks || !mentions_first(written, path));
        if meant.paths.is_empty() {
            continue;
        }
        let paths = meant.paths.join(", ");
        let instead = match (text(written).is_some(), meant.paths.len()) {
            (true, 1) => format!("{option} = {paths}"),
            (true, _) => format!("{option} = ({paths})"),
            (false, _) => paths,
        };
        let fixed = if meant.has_more { "; what is the same in all keys goes into `prefix`" } else { "" };
        mistakes.at(
            quoted,
            format!(
                "a text is taken as it is, so every call would share one lock: write `{instead}`, without quotes{fixed}"
            ),
        );
    }
}

/// `r#type.id` for `type.id`, when the argument is called `r#type`.
fn written_out(path: &str, names: &[String]) -> String {
    let first = path.split('.').next().unwrap_or_default();
    let is_raw = names.iter().any(|name| name.strip_prefix("r#") == Some(first));
    if is_raw { format!("r#{path}") } else { path.to_owned() }
}

/// The texts that are the key, or a part of it.
fn texts(written: &Expr) -> Vec<&LitStr> {
    match plain(written) {
        Expr::Tuple(ExprTuple { elems, .. }) | Expr::Array(ExprArray { elems, .. }) => {
            elems.iter().flat_map(texts).collect()
        }
        other => text(other).into_iter().collect(),
    }
}

fn mentions_first(written: &Expr, path: &str) -> bool {
    let first = path.split('.').next().unwrap_or_default();
    syn::parse_str::<Ident>(first).is_ok_and(|name| mentions(written.to_token_stream(), &name))
}

/// The arguments that a text was meant to name.
struct Meant {
    /// `id`, `order.id`.
    paths: Vec<String>,
    /// Whether they are marked, as in `"{id}"`: then nothing else can be meant.
    has_marks: bool,
    /// Whether there is other text, too.
    has_more: bool,
}

impl Meant {
    fn read(text: &str, names: &[String]) -> Self {
        if is_path_of(text, names) {
            return Self { paths: vec![text.to_owned()], has_marks: false, has_more: false };
        }
        let mut paths = Vec::new();
        let mut marked = 0;
        for (at, mark) in text.match_indices(['{', '#', '$']) {
            let behind = text.get(at + 1..).unwrap_or_default();
            let is_part = |c: char| c == '.' || c == '_' || c.is_alphanumeric();
            let path = behind.split(|c| !is_part(c)).next().unwrap_or_default();
            let is_closed = mark != "{" || behind.strip_prefix(path).is_some_and(|rest| rest.starts_with(['}', ':']));
            if is_closed && is_path_of(path, names) {
                // `${id}` has two characters before the path and one after it.
                let before = text.get(..at).is_some_and(|before| before.ends_with(['$', '#']));
                marked += path.len() + 1 + usize::from(mark == "{") + usize::from(mark == "{" && before);
                paths.push(path.to_owned());
            }
        }
        Self { has_marks: !paths.is_empty(), has_more: marked < text.len(), paths }
    }
}

/// Whether it is an argument, or a field of one.
fn is_path_of(path: &str, names: &[String]) -> bool {
    let mut parts = path.split('.');
    let is_name = |part: &str| part.chars().all(|c| c == '_' || c.is_alphanumeric()) && !part.is_empty();
    parts.next().is_some_and(|first| names.iter().any(|name| name.trim_start_matches("r#") == first))
        && parts.all(is_name)
}
