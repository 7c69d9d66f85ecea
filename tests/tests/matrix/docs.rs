//! docs/faults.md and the tests agree.

use std::fs;
use std::path::Path;

/// Every fn in the files below `folder`.
fn fns(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fns(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let name = |line: &str| line.split_once("fn ")?.1.split(['(', '<']).next().map(str::to_owned);
            found.extend(text.lines().filter_map(name));
        }
    }
}

/// The names in the last cell of each row of the matrix, without the file's.
fn named(text: &str) -> Vec<&str> {
    let cells = text.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once("| "));
    let words = cells.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2));
    words.map(|word| word.rsplit("::").next().unwrap_or(word)).filter(|word| word.contains('_')).collect()
}

#[test]
fn every_test_that_the_docs_name_exists_and_every_row_is_named() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(workspace.join("docs/faults.md")).unwrap();
    let named = named(&text);
    let mut found = Vec::new();
    fns(&workspace.join("tests/tests"), &mut found);
    fns(&workspace.join("lock-runtime/src"), &mut found);
    let missing: Vec<_> = named.iter().filter(|name| !found.iter().any(|one| one == *name)).collect();
    assert!(missing.is_empty(), "the docs name tests that do not exist: {missing:?}");
    let is_row = |name: &&String| name.starts_with("row_") && name.as_bytes()[4].is_ascii_digit();
    let untold: Vec<_> = found.iter().filter(is_row).filter(|name| !named.contains(&name.as_str())).collect();
    assert!(untold.is_empty(), "tests of rows that the docs do not name: {untold:?}");
    assert!(named.len() > 40, "the table is not read: {named:?}");
}
