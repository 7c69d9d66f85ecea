//! Checks of the docs: tests/shown-by.md and the tests agree, the runbook has the library's warnings and errors, and every table
//! renders.

use std::collections::BTreeSet;
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

/// The numbers in the first cells of the rows.
fn numbers(text: &str) -> BTreeSet<u8> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(|cell| cell.split(", ").filter_map(|number| number.parse().ok())).collect()
}

/// The test names in the last cell of each row of the matrix, without the file's name.
fn named(text: &str) -> Vec<&str> {
    let cells = text.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once("| "));
    let words = cells.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2));
    words.map(|word| word.rsplit("::").next().unwrap_or(word)).filter(|word| word.contains('_')).collect()
}

#[test]
fn every_test_that_the_docs_name_exists_and_every_row_is_named() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(workspace.join(path)).unwrap();
    let text = read("tests/shown-by.md");
    let named = named(&text);
    let mut found = Vec::new();
    fns(&workspace.join("tests/tests"), &mut found);
    fns(&workspace.join("lock-runtime/src"), &mut found);
    fns(&workspace.join("lock-wire/src"), &mut found);
    let missing: Vec<_> = named.iter().filter(|name| !found.iter().any(|one| one == *name)).collect();
    assert!(missing.is_empty(), "the docs name tests that do not exist: {missing:?}");
    let is_row = |name: &&String| name.starts_with("row_") && name.as_bytes()[4].is_ascii_digit();
    let untold: Vec<_> = found.iter().filter(is_row).filter(|name| !named.contains(&name.as_str())).collect();
    assert!(untold.is_empty(), "the docs do not name these tests of rows: {untold:?}");
    assert!(named.len() > 40, "too few rows found: {named:?}");
    let (faults, shown) = (numbers(&read("docs/faults.md")), numbers(&text));
    let in_one: Vec<_> = faults.symmetric_difference(&shown).collect();
    assert!(faults.len() > 60 && in_one.is_empty(), "docs/faults.md and tests/shown-by.md do not both have {in_one:?}");
}

/// The number of cells in a row of a table; `None` if the line is no row. `\|` is no border.
fn cells(line: &str) -> Option<usize> {
    let line = line.trim().strip_prefix('|')?;
    Some(line.replace("\\|", "").matches('|').count())
}

fn is_rule(line: &str) -> bool {
    cells(line).is_some() && line.contains("---") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

/// The tables of a page that don't render: without a header, or with rows of different lengths.
fn broken_tables(page: &str) -> Vec<String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut broken = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_rule(line)) {
        let header = number.checked_sub(1).and_then(|before| cells(lines[before]));
        let starts = number < 2 || cells(lines[number - 2]).is_none();
        if header != cells(line) || !starts {
            broken.push(format!("line {number}: no header of as many cells alone above the rule"));
        }
        let rows = lines[number + 1..].iter().enumerate().take_while(|(_, row)| cells(row).is_some());
        let odd = rows.filter(|(_, row)| cells(row) != cells(line));
        broken.extend(odd.map(|(place, row)| format!("line {}: {row}", number + 2 + place)));
    }
    broken
}

#[test]
fn every_table_of_the_docs_has_a_header_and_rows_of_as_many_cells() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let pages_of = |folder: &str| fs::read_dir(workspace.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages_of("docs")
        .chain(pages_of("docs/guide"))
        .chain([workspace.join("README.md"), workspace.join("ARCHITECTURE.md")]);
    let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
    let mut tables = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        tables += text.lines().filter(|line| is_rule(line)).count();
        assert_eq!(broken_tables(&text), Vec::<String>::new(), "{}", page.display());
    }
    assert!(tables > 30, "{tables}");
    for broken in ["|---|\n| a |", "| a |\n|---|---|", "| a |\n| b |\n|---|", "| a |\n|---|\n| a | b |"] {
        assert_eq!(broken_tables(broken).len(), 1, "{broken}");
    }
}

/// The texts of the library's log events of level `WARN`.
fn warnings(source: &str) -> Vec<&str> {
    let events = source.split("tracing::warn!(").skip(1).filter_map(|rest| rest.split(");").next());
    events.filter_map(|event| event.rsplit('"').nth(1)).collect()
}

/// The variants of an enum.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let body = source.split_once(&format!("pub enum {name} {{\n")).unwrap().1.split("\n}").next().unwrap();
    let items = body.lines().filter_map(|line| line.strip_prefix("    "));
    let words = items.filter(|item| item.starts_with(|c: char| c.is_ascii_uppercase()));
    words.filter_map(|item| item.split([' ', ',', '(']).next()).collect()
}

/// The beginning of a text, for which people search.
fn beginning(text: &str) -> String {
    text.split_whitespace().take(5).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_runbook_has_every_warning_and_every_error() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(workspace.join(path)).unwrap();
    let (events, errors) = (read("lock-runtime/src/observe.rs"), read("lock-runtime/src/error.rs"));
    let runbook = read("docs/runbook.md");
    let (warnings, variants) = (warnings(&events), variants(&errors, "LockError"));
    assert!(warnings.len() >= 9 && variants.len() >= 12, "not read: {warnings:?} {variants:?}");
    let texts = warnings.into_iter().map(beginning).chain(variants.into_iter().map(|variant| format!("`{variant}")));
    let missing: Vec<_> = texts.filter(|text| !runbook.contains(text.as_str())).collect();
    assert!(missing.is_empty(), "docs/runbook.md does not have {missing:?}");
}
