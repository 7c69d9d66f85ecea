//! Checks of the docs: every link works, the code that the pages name exists, every page of `docs/` is a chapter of the book, and
//! the front page of the crate has every cargo feature.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages for maintainers only.
const MAINTAINER_PAGES: [&str; 7] = [
    "tests/track-record.md",
    "tests/shown-by.md",
    "tests/history/README.md",
    "tests/tests/checks/model_server/foreign.md",
    "lock-runtime/src/simulation/bugs.md",
    "lock-runtime/src/store/redis/scripts/facts.md",
    "bench/cases.md",
];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Collects the pages of a folder and its subfolders.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    files(folder, &["md"], found);
}

/// Collects the files with one of these extensions.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
            found.push(path);
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The names of fns, types and values that a page shows as code: `Type::name`, and names with an underscore.
fn names(page: &str) -> HashSet<String> {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    });
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |span: &&str| span.replace("::", "_").chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_of_code = |span: &&str| span.contains("::") || span.trim_end_matches('_').contains('_');
    spans.filter(is_name).filter(is_of_code).map(str::to_owned).collect()
}

/// The lines outside of code blocks, without inline code.
fn prose(page: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    page.lines().filter_map(move |line| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then(|| line.split('`').step_by(2).collect())
    })
}

/// The targets of a page's links.
fn links(page: &str) -> Vec<String> {
    let of_line = |line: String| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned));
        targets.collect::<Vec<_>>()
    };
    prose(page).flat_map(of_line).collect()
}

/// The anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The anchors of a page. The second of two equal headings gets a number in its anchor, which this leaves out: nothing links to one.
fn anchors(page: &str) -> HashSet<String> {
    let mut is_code = false;
    let headings = page.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings.map(|heading| anchor(heading.trim_start_matches('#'))).collect()
}

/// `a/b/../c` as `a/c`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// What is wrong with a link of a page, if anything.
fn mistake(page: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return None;
    }
    let (path, wanted) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { page.to_owned() } else { plain(&page.parent().unwrap().join(path)) };
    if !target.exists() {
        return Some(format!("{link}: no such file"));
    }
    let docs = workspace().join("docs");
    if page.starts_with(&docs) && !target.starts_with(&docs) {
        return Some(format!("{link}: outside of the book, where the link would be broken; name the file instead"));
    }
    let wanted = wanted?;
    let is_there = anchors(&fs::read_to_string(&target).ok()?).contains(wanted);
    (!is_there).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let mut all = Vec::new();
    pages(&workspace().join("docs"), &mut all);
    let roots = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    all.extend(roots.iter().chain(&MAINTAINER_PAGES).map(|name| workspace().join(name)));
    let mut seen = 0;
    let mut mistakes = Vec::new();
    for page in &all {
        let links = links(&fs::read_to_string(page).unwrap());
        seen += links.len();
        let wrong = links.iter().filter_map(|link| mistake(page, link));
        mistakes.extend(wrong.map(|wrong| format!("{}: {wrong}", page.strip_prefix(workspace()).unwrap().display())));
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    assert!(seen > 150, "too few links found: {seen}");
}

#[test]
fn the_code_that_the_pages_name_is_there() {
    let mut sources = Vec::new();
    for package in ["lock-runtime", "lock-wire", "lock-macros", "tests"] {
        files(&workspace().join(package), &["rs", "lua"], &mut sources);
    }
    let code: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let known: HashSet<&str> = words(&code).collect();
    for page in [
        "ARCHITECTURE.md",
        "docs/protocol.md",
        "docs/guarantees.md",
        "docs/fine-print.md",
        "docs/faults.md",
        "tests/shown-by.md",
    ] {
        let names = names(&fs::read_to_string(workspace().join(page)).unwrap());
        let is_there = |name: &str| name.split("::").all(|part| known.contains(part));
        let gone: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
        assert!(gone.is_empty() && names.len() >= 5, "{page} names {gone:?}, of {}", names.len());
    }
    assert_eq!(
        names("a `b_c` `d` `on_` `E::f`\n```\n`g_h`\n```"),
        HashSet::from(["b_c".to_owned(), "E::f".to_owned()])
    );
}

#[test]
fn every_page_of_the_docs_is_a_chapter_of_the_book() {
    let docs = workspace().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let chapters: HashSet<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
    let mut written = Vec::new();
    pages(&docs, &mut written);
    let left_out: Vec<_> =
        written.iter().filter(|page| !page.ends_with("SUMMARY.md") && !chapters.contains(*page)).collect();
    assert!(left_out.is_empty(), "docs/SUMMARY.md does not have {left_out:?}");
}

#[test]
fn every_chapter_of_the_book_is_a_page_of_rustdoc() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).unwrap();
    let modules = read("lock-runtime/src/lib.rs");
    let in_rustdoc: Vec<&str> = modules.split('"').filter_map(|part| part.strip_prefix("docs/")).collect();
    assert_eq!(links(&read("docs/SUMMARY.md")), in_rustdoc, "the chapters must have this order");
}

/// rustdoc and the book hide lines that begin with `# `. GitHub shows them, where they disturb the reader.
#[test]
fn no_code_of_the_pages_has_hidden_lines() {
    let mut all = vec![workspace().join("README.md")];
    pages(&workspace().join("docs"), &mut all);
    let mut blocks = 0;
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        for block in text.split("\n```rust").skip(1) {
            blocks += 1;
            let code = block.split("\n```").next().unwrap();
            let hidden =
                code.lines().find(|line| matches!(line.trim_start(), "#") || line.trim_start().starts_with("# "));
            assert_eq!(hidden, None, "{}", page.display());
        }
    }
    assert!(blocks > 30, "{blocks}");
}

#[test]
fn the_front_page_lists_each_cargo_feature() {
    for (package, least) in [("lock-runtime", 4), ("lock-wire", 2)] {
        check_features(package, least);
    }
}

fn check_features(package: &str, least: usize) {
    let read = |file: &str| fs::read_to_string(workspace().join(package).join(file)).unwrap();
    let (manifest, page) = (read("Cargo.toml"), read("README.md"));
    let features = manifest.split_once("\n[features]\n").unwrap().1.split("\n[").next().unwrap();
    let named = features.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let names: Vec<_> = named.map(|(name, _)| name).filter(|name| *name != "default").collect();
    let table = page.split_once("# Cargo features").unwrap().1.split("\n# ").next().unwrap();
    let missing: Vec<_> = names.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(names.len() >= least && missing.is_empty(), "{names:?}, not in {package}/README.md: {missing:?}");
}

#[test]
fn a_broken_link_is_found() {
    let page = workspace().join("docs/guide/start.md");
    for broken in ["nowhere.md", "../runbook.md#nothing", "#nothing", "../../README.md"] {
        assert!(mistake(&page, broken).is_some(), "{broken}");
    }
    for right in ["../runbook.md#a-lock-is-stuck", "#4-test-it", "https://redis.io"] {
        assert_eq!(mistake(&page, right), None);
    }
    assert_eq!(links("a [b](c.md) `[d](e)`\n```\n[f](g)\n```\n[h](#i), [j](k)"), ["c.md", "#i", "k"]);
}
