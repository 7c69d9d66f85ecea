//! The compiler's errors for wrong uses of the macros: one mistake per file in `ui/`, named after the mistake.

#[test]
fn a_mistake_is_told_where_it_is_made() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
