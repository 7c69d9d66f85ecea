//! Traits and `impl` blocks, made of the words of their grammar, with mistakes.

use proptest::prelude::*;
use proptest::sample::select;

use super::options::{among, option_after_a_key, options};

const RECEIVERS: &str = "
    &self  &mut self  self  mut self  &'a self  self: Self  self: &Self  self: Box<Self>  self: Arc<Self>  self: Rc<Self>
    self: Pin<&mut Self>  #[locked_object] &self
";

const ARGUMENTS: &str = "
    id: u64  mut id: u64  _: u64  (a, b): (u64, u64)  #[locked_object] id: u64  other: Self  other: &Self  other: &mut Self
    all: Vec<Self>  name: &'a str  item: Self::Item  item: <Self as Shop<T>>::Item  call: impl FnOnce(u64) -> u64  row: R
    #[locked_complex_object(field = id)] order: &Order  #[cfg(test)] id: u64  #[allow(unused)] id: u64
";

const OUTPUTS: &str = "
    -> Result<u64, E>  -> u64  -> Self  -> Option<Self>  -> Result<Self, E>  -> Vec<Self>  -> Self::Item  -> &'a str
    -> impl Future<Output = Result<u64, E>> + Send  -> impl Future<Output = Self>  -> Result<(), E>
    -> Pin<Box<dyn Future<Output = Result<Self, E>> + Send + 'a>>  -> impl Iterator<Item = u64>  -> !
";

const MEMBERS: &str = "
    type Item;  type Item: Send;  type Rows<'r, R>: Iterator where Self: 'r;  const N: u64;  const N: u64 = 1;  const S: Self;
    m!();  #[cache_lock] type Item;  #[cfg(test)] type Item;  fn plain();
";

const GENERICS: &str = "  <'a>  <T>  <'a, T: Send = u64, const N: usize = 1>  <Inner, T>  ";

fn text(texts: &'static str, missing: u32) -> impl Strategy<Value = String> {
    prop_oneof![missing => Just(String::new()), 3 => among(texts).prop_map(str::to_owned)]
}

fn attribute() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        1 => Just("#[cache_lock]".to_owned()),
        2 => Just("#[cache_lock(prefix = \"p\", key = id)]".to_owned()),
        2 => option_after_a_key().prop_map(|options| format!("#[cache_lock({options})]")),
        1 => options().prop_map(|options| format!("#[lock_runtime::cache_lock({options})]")),
    ]
}

fn method() -> impl Strategy<Value = String> {
    let head =
        (attribute(), select(&["async fn", "fn", "unsafe fn"][..]), select(&["", "<'a>", "<R, const M: usize>"][..]));
    let arguments = (text(RECEIVERS, 1), prop::collection::vec(among(ARGUMENTS), 0..3));
    let tail = (text(OUTPUTS, 1), select(&["", "where Self: Sized + Sync", "where Self: 'a"][..]), any::<bool>());
    (head, arguments, tail).prop_map(
        |((attribute, keyword, generics), (receiver, arguments), (output, clause, has_body))| {
            let inputs: Vec<&str> =
                [receiver.as_str()].into_iter().filter(|r| !r.is_empty()).chain(arguments).collect();
            let body = if has_body { "{ todo!() }" } else { ";" };
            format!("{attribute} {keyword} f{generics}({}) {output} {clause} {body}", inputs.join(", "))
        },
    )
}

fn members() -> impl Strategy<Value = String> {
    let member = prop_oneof![4 => method(), 1 => among(MEMBERS).prop_map(str::to_owned)];
    prop::collection::vec(member, 0..4).prop_map(|members| members.join("\n"))
}

/// The attribute's options, and a trait.
pub(super) fn interface() -> impl Strategy<Value = (String, String)> {
    let shared = prop_oneof![3 => Just(String::new()), 1 => options()];
    let before = select(&["", "#[async_trait]", "pub", "#[cfg(test)] pub(crate)", "unsafe"][..]);
    let supertraits = select(&["", ": Send", ": Named<Self> + 'static", "where Self: Sized"][..]);
    (shared, before, text(GENERICS, 1), supertraits, members()).prop_map(
        |(shared, before, generics, supertraits, members)| {
            (
                format!("proxy = Locked, {shared}"),
                format!("{before} trait Shop{generics} {supertraits} {{ {members} }}"),
            )
        },
    )
}

/// The attribute's options, and an `impl` block.
pub(super) fn block() -> impl Strategy<Value = (String, String)> {
    let before = select(&["", "#[async_trait]", "unsafe", "/// Docs.\n"][..]);
    let head = select(&["impl Shop", "impl<T: Send> Shop<T> where T: Sync", "impl Sells for Shop<{ 1 }>"][..]);
    (options(), before, head, members())
        .prop_map(|(options, before, head, members)| (options, format!("{before} {head} {{ {members} }}")))
}
