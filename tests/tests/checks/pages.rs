//! Every link in the pages leads somewhere, every page of `docs/` is a chapter of the book, and the front page of the crate has
//! every cargo feature.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The pages of a folder and of the folders below it.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// The lines outside of blocks of code, without code inside of a line.
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

/// Where the links of a page lead.
fn links(page: &str) -> Vec<String> {
    let of_line = |line: String| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned));
        targets.collect::<Vec<_>>()
    };
    prose(page).flat_map(of_line).collect()
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The anchors of a page. A heading that is there twice has a number behind its second anchor; nothing links to one.
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
    all.extend(roots.map(|name| workspace().join(name)));
    let mut seen = 0;
    let mut mistakes = Vec::new();
    for page in &all {
        let links = links(&fs::read_to_string(page).unwrap());
        seen += links.len();
        let wrong = links.iter().filter_map(|link| mistake(page, link));
        mistakes.extend(wrong.map(|wrong| format!("{}: {wrong}", page.strip_prefix(workspace()).unwrap().display())));
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    assert!(seen > 150, "not read: {seen} links");
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
fn the_front_page_lists_each_cargo_feature() {
    let read = |path: &str| fs::read_to_string(workspace().join(path)).unwrap();
    let (manifest, page) = (read("lock-runtime/Cargo.toml"), read("lock-runtime/README.md"));
    let features = manifest.split_once("\n[features]\n").unwrap().1.split("\n[").next().unwrap();
    let named = features.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let names: Vec<_> = named.map(|(name, _)| name).filter(|name| *name != "default").collect();
    let table = page.split_once("# Cargo features").unwrap().1.split("\n# ").next().unwrap();
    let missing: Vec<_> = names.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(names.len() >= 7 && missing.is_empty(), "{names:?}, not in lock-runtime/README.md: {missing:?}");
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
