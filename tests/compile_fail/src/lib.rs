//! What the compiler says about wrong uses of the macros: one mistake a file in `ui/`, filed by the mistake's name.

#[test]
fn a_mistake_is_told_where_it_is_made() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
