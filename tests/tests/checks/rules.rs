//! For each numbered rule of docs/protocol.md there is a seeded bug that breaks it, and a test that finds the bug.

use std::fs;
use std::path::Path;

use crate::track_record::{rows, tests};

/// The page's rules of one kind, such as `L` for L1, L2, ….
fn numbers(page: &str, kind: &str) -> Vec<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let starts = page.lines().filter_map(|line| {
        let line = line.strip_prefix("- ").unwrap_or(line);
        let line = line.trim_start_matches("**");
        let (number, rest) = line.strip_prefix(kind)?.split_once(['.', ':'])?;
        (is_number(number) && rest.starts_with([' ', '*'])).then(|| format!("{kind}{number}"))
    });
    starts.collect()
}

#[test]
fn each_rule_has_a_bug_that_leaves_it_out_and_a_test_that_finds_the_bug() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(workspace.join("docs/protocol.md")).unwrap();
    let bugs = fs::read_to_string(workspace.join("lock-runtime/src/simulation/bugs.md")).unwrap();
    let (needed, bugs) = bugs.split_once("\n## Bugs in simulated worlds\n").unwrap();
    let needed = rows(needed, "| rule |");
    assert!(needed.len() > 35 && needed.iter().all(|cells| cells.len() == 3), "not read: {needed:?}");

    let (_, section) = page.split_once("\n## Rules\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut rules: Vec<_> = ["", "L"].iter().flat_map(|kind| numbers(section, kind)).collect();
    rules.extend(["S", "Q"].iter().flat_map(|kind| numbers(&page, kind)));
    assert_eq!(rules.len(), 30, "the page is not read, or has more rules than a reader can keep in mind: {rules:?}");
    let is_left_out = |rule: &&String| !needed.iter().any(|cells| cells[0] == **rule);
    assert_eq!(
        rules.iter().filter(is_left_out).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "no bug breaks these rules"
    );
    let unknown: Vec<_> = needed.iter().map(|cells| &cells[0]).filter(|rule| !rules.contains(rule)).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "the page does not have these rules");

    let mut known = Vec::new();
    for package in ["lock-runtime/src", "lock-wire/src"] {
        tests(&workspace.join(package), &mut known);
    }
    for cells in &needed {
        let (bug, test) = (&cells[1], cells[2].trim_matches('`'));
        assert!(known.iter().any(|name| name == test), "no test has the name {test}");
        let is_listed = ["each_seeded_bug", "each_bug_of_a_search"].iter().any(|list| test.starts_with(list));
        assert!(!is_listed || bugs.contains(&format!("| {bug} |")), "bugs.md does not list: {bug}");
    }
}
