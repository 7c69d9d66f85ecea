//! The page: a row for each crate, and the classes of refusals.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::comparison::{Class, Comparison};
use crate::sites::Kind;

pub(crate) const PATH: &str = "report.md";

/// Crates with async fns and traits that take only seconds to check. The versions are fixed, so that pages are comparable.
pub(crate) const LIST: &str = "
    tower@0.5.3  mini-redis@0.4.1  bb8@0.9.1  axum-core@0.5.6  tokio-stream@0.1.19  hyper-util@0.1.21  mobc@0.9.0
    http-body-util@0.1.5  async-lock@3.5.0  rslock@0.10.0  async-channel@2.5.0  tokio-util@0.7.20  deadpool@0.13.1
    distributed-lock-core@0.2.0  tokio-postgres@0.7.18  h2@0.4.20  backon@1.6.0  async-broadcast@0.7.2  moka@0.12.16
    async-executor@1.14.1  tokio-retry2@0.9.1  tokio-cron-scheduler@0.15.1  reqwest-middleware@0.5.2  tower-http@0.6.11
    warp@0.4.3  cached@4.1.0  apalis-core@1.0.0  async-compression@0.4.52  async-session@3.0.0  oauth2@5.0.0
";

const HEAD: &str = "# The attribute on public crates

`cargo run --release` in this folder writes this page: before a release, and after a change of the macros.

It puts `#[cache_lock]` on each fn and trait that a crate compiles, with `on_fail`, so that any return type will do. What is refused
loses the attribute, until the crate compiles. A refusal by the macro is meant. One by the compiler comes from types and lifetimes that
the macro can't see; read a new class of these with care. An error or a new warning that is left is a bug of ours. A warning is lost
where a lint does not look through the attribute.

The first three columns count what kept the attribute. The time is that of the processor for `cargo check` of the crate alone, the
lesser of two. In the lists at the end, `…` stands for a name or a type.

| crate | async fns | other fns | traits | refused by the macro | by the compiler | errors | warnings: new | lost | check | with locks | ratio |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

pub(crate) fn page(comparisons: &[Comparison]) -> String {
    let mut page = HEAD.to_owned();
    let (mut all, mut all_by_macro, mut all_by_compiler, mut all_errors) = (0, 0, 0, 0);
    for comparison in comparisons {
        let locked = |kind| comparison.locked.get(&kind).copied().unwrap_or(0);
        let (asynchronous, blocking, traits) = (locked(Kind::Async), locked(Kind::Blocking), locked(Kind::Trait));
        let refused = |by_macro| {
            let of_kind = comparison.refused.iter().filter(|(class, _)| matches!(class, Class::Macro(_)) == by_macro);
            of_kind.map(|(_, places)| places.len()).sum::<usize>()
        };
        let (by_macro, by_compiler) = (refused(true), refused(false));
        let errors = comparison.errors.len();
        let (new, lost) = (comparison.new_warnings.len(), comparison.lost_warnings.len());
        all += asynchronous + blocking + traits + by_macro + by_compiler;
        all_by_macro += by_macro;
        all_by_compiler += by_compiler;
        all_errors += errors;
        let (before, after) = (comparison.time_before.as_secs_f64(), comparison.time_after.as_secs_f64());
        let ratio = after / before;
        // Writing to a `String` can't fail.
        let _ = writeln!(
            page,
            "| {} | {asynchronous} | {blocking} | {traits} | {by_macro} | {by_compiler} | {errors} | {new} | {lost} | {before:.1} s | \
             {after:.1} s | {ratio:.1} |",
            comparison.name
        );
    }
    let _ = writeln!(
        page,
        "\n**Of {all} fns and traits the macro refused {all_by_macro}, the compiler {all_by_compiler}. Errors that are left: {all_errors}.**"
    );
    let mut classes: BTreeMap<&Class, usize> = BTreeMap::new();
    for (class, places) in comparisons.iter().flat_map(|comparison| &comparison.refused) {
        *classes.entry(class).or_default() += places.len();
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_macro = |class: &Class| matches!(class, Class::Macro(_));
    for (title, by_macro) in [("Refused by the macro", true), ("Refused by the compiler", false)] {
        let _ = write!(page, "\n## {title}\n\n| what it says | fns and traits |\n|---|--:|\n");
        for (class, count) in classes.iter().filter(|(class, _)| of_macro(class) == by_macro) {
            let (Class::Macro(words) | Class::Compiler(words)) = class;
            let _ = writeln!(page, "| {} | {count} |", words.replace('|', "\\|"));
        }
    }
    page
}
