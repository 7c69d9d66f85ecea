//! The pages of `docs/` for rustdoc: their links lead to each other's modules.

use std::path::{Component, Path, PathBuf};

/// The module of `lock-runtime` with the pages.
const PAGES: &str = "crate::guide";

/// Rewrites the links of the page at `path`, which is `docs/` and its place there. A link to another page becomes a link to that page's
/// module. What is not published with the crate can't be linked from there: such a link, or a picture, becomes its text.
pub(crate) fn for_rustdoc(path: &Path, page: &str) -> String {
    let blocks = page.split("\n```").enumerate();
    let blocks = blocks.map(|(number, block)| if number % 2 == 0 { linked(path, block) } else { block.to_owned() });
    blocks.collect::<Vec<_>>().join("\n```")
}

/// Inline code stays as it is.
fn linked(path: &Path, text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        written.push_str(before);
        let is_code = written.matches('`').count() % 2 == 1;
        let (Some((target, behind)), Some(start), false) = (after.split_once(')'), opening(&written), is_code) else {
            written.push_str("](");
            rest = after;
            continue;
        };
        if let Some(target) = target_for_rustdoc(path, target) {
            written.extend(["](", &target, ")"]);
        } else {
            written.remove(start);
            if written[..start].ends_with('!') {
                written.remove(start - 1);
            }
        }
        rest = behind;
    }
    written + rest
}

/// The position of the last bracket still open.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.bytes().rposition(|byte| {
        depth += match byte {
            b']' => 1,
            b'[' => -1,
            _ => 0,
        };
        depth < 0
    })
}

fn target_for_rustdoc(path: &Path, target: &str) -> Option<String> {
    if target.starts_with('#') || target.contains("://") {
        return Some(target.to_owned());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let file = resolved(&path.parent()?.join(file));
    let name = file.strip_prefix("docs").ok()?.to_str()?.strip_suffix(".md")?;
    let name = name.strip_prefix("guide/").unwrap_or(name).replace('-', "_");
    Some(anchor.map_or_else(|| format!("{PAGES}::{name}"), |anchor| format!("{PAGES}::{name}#{anchor}")))
}

/// The path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    resolved
}

#[test]
fn links_lead_to_modules_and_what_is_not_published_is_text() {
    let page = "\
[a](errors.md), [b
[c]](../track-record.md#how-many) and [d](#here)
[e](https://redis.io) ![picture](../charts/w1.svg) [f](../../ARCHITECTURE.md) `[g](errors.md)` [h](start.md)
```rust
[i](errors.md)
```
# [`j`](../telemetry.md)";
    let expected = "\
[a](crate::guide::errors), [b
[c]](crate::guide::track_record#how-many) and [d](#here)
[e](https://redis.io) picture f `[g](errors.md)` [h](crate::guide::start)
```rust
[i](errors.md)
```
# [`j`](crate::guide::telemetry)";
    assert_eq!(for_rustdoc(Path::new("docs/guide/modes.md"), page), expected);
}
