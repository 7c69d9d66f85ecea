//! tests/track-record.md: each command runs a test, and the counts at the top match the rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The cells of the rows below this table head.
pub(crate) fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let mut is_below = false;
    let below = page.lines().filter(|line| {
        is_below = line.starts_with(head) || is_below && line.starts_with('|');
        is_below && !line.starts_with(head) && !line.starts_with("|---")
    });
    below.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Collects the names of the tests in the files of a folder.
pub(crate) fn tests(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let is_mark = |line: &str| line.trim().starts_with("#[test]") || line.trim().starts_with("#[tokio::test");
            let (mut is_test, mut is_listed) = (false, false);
            for line in text.lines() {
                // A test that runs on every store is in a list.
                is_listed = line.starts_with("over_every_store![") || is_listed && line != "];";
                if let Some(name) = line.trim().strip_suffix(',').filter(|_| is_listed) {
                    found.push(name.to_owned());
                }
                is_test |= is_mark(line);
                if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test) {
                    found.extend(name.split('(').next().map(str::to_owned));
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn each_command_of_the_track_record_runs_a_test_and_its_counts_are_right() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(workspace.join("tests/track-record.md")).unwrap();
    let faults = rows(&page, "| fault |");
    assert!(faults.len() > 50 && faults.iter().all(|cells| cells.len() == 5), "not read: {faults:?}");
    let packages = [
        ("lock-runtime", "lock-runtime/src"),
        ("lock-wire", "lock-wire/src"),
        ("lock-macros", "lock-macros/src"),
        ("lock-cli", "lock-cli/tests"),
        ("tests", "tests/tests"),
        ("compile_fail", "tests/compile_fail/src"),
        ("as_written", "tests/as_written/tests"),
    ];
    let known = BTreeMap::from(packages.map(|(package, folder)| {
        let mut found = Vec::new();
        tests(&workspace.join(folder), &mut found);
        (package, found)
    }));
    let runs_nothing = |cells: &&Vec<String>| {
        let command = cells[4].trim_matches('`');
        let runs = command.split_once(' ').and_then(|(package, filter)| Some((known.get(package)?, filter)));
        !runs.is_some_and(|(tests, filter)| filter.contains('_') && tests.iter().any(|name| name.contains(filter)))
    };
    let wrong: Vec<_> = faults.iter().filter(runs_nothing).collect();
    assert!(wrong.is_empty(), "no test has such a name: {wrong:#?}");

    let count = |column: usize, word: &str| faults.iter().filter(|cells| cells[column] == word).count();
    let found_by = rows(&page, "| found by |");
    let counted: usize = found_by.iter().map(|cells| count(2, &cells[0])).sum();
    assert_eq!(counted, faults.len(), "a row is found by something that the counts do not have");
    for cells in &found_by {
        assert_eq!(cells[2], count(2, &cells[0]).to_string(), "{}", cells[0]);
    }
    let (all, [yes, no, unknown]) = (faults.len(), ["yes", "no", "–"].map(|word| count(3, word)));
    assert_eq!(all, yes + no + unknown);
    for said in
        [format!("{all} faults. {yes} were seen"), format!("{no} were not"), format!("Of {unknown} it is not recorded")]
    {
        assert!(page.contains(&said), "the page does not say: {said}");
    }
}
