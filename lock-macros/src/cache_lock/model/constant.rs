//! Values that are known before the program runs: the compiler checks them.

use syn::{Expr, Path};

use super::{is_argument, plain};
use crate::cache_lock::parse::Function;

/// Whether it is the path of a `const`, by the way it is written, and one that an item may name: in `Self::EXPIRE` and
/// `T::EXPIRE` the first part may be generic.
pub(super) fn is_const(value: &Expr, function: &Function) -> bool {
    let Expr::Path(written) = plain(value) else { return false };
    let Path { segments, .. } = &written.path;
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return false };
    let is_in_capitals = |name: String| name.contains(char::is_uppercase) && !name.contains(char::is_lowercase);
    written.qself.is_none()
        && segments.iter().all(|part| part.arguments.is_none())
        && is_in_capitals(last.ident.to_string())
        && (segments.len() == 1 || first.ident.to_string().starts_with(char::is_lowercase))
        && !is_argument(written.path.get_ident(), function)
        && !function.signature.generics.const_params().any(|parameter| written.path.is_ident(&parameter.ident))
}
