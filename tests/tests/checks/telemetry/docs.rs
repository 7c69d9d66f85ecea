//! docs/telemetry.md has every event, with its level and its fields, and every field of the spans.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)).unwrap()
}

/// The level, the fields and the beginning of the text of each event.
fn events(source: &str) -> Vec<(&str, Vec<String>, String)> {
    let calls = source.split("tracing::").skip(1).filter_map(|rest| rest.split_once("!("));
    let calls = calls.filter(|(level, _)| ["debug", "info", "warn"].contains(level));
    calls
        .map(|(level, rest)| {
            let call = rest.split(");\n").next().unwrap().replace("\\\n", "");
            let (fields, text) = call.trim().trim_end_matches('"').rsplit_once('"').expect("a text");
            let words =
                fields.split(',').map(str::trim).filter(|field| !field.is_empty() && !field.starts_with("target"));
            let names = words.map(|field| field.split([' ', '=']).next().unwrap().trim_start_matches('?').to_owned());
            let words: Vec<_> = text.split_whitespace().collect();
            // A short text must be the whole text of its row.
            let text = if words.len() > 4 { words[..4].join(" ") } else { format!("{text}`") };
            (level, names.collect(), text)
        })
        .collect()
}

#[test]
fn the_page_has_every_event_with_its_level_and_its_fields() {
    let page = read("docs/telemetry.md");
    let source = read("lock-runtime/src/observe.rs");
    let events = events(&source);
    assert!(events.len() >= 20, "{events:?}");
    for (level, fields, text) in events {
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("| `{text}")));
        let row = row.or_else(|| page.lines().find(|line| line.contains(&format!("| `` {text}"))));
        let row = row.unwrap_or_else(|| panic!("docs/telemetry.md does not have «{text}»"));
        assert!(row.contains(&level.to_uppercase()), "{level}: {row}");
        for field in fields {
            assert!(row.contains(&format!("`{field}`")), "{field}: {row}");
        }
    }
}

#[test]
fn the_page_has_every_span_and_its_fields() {
    let page = read("docs/telemetry.md");
    let source = read("lock-runtime/src/observe.rs");
    let words = source.split([' ', '"', ',', '\n', '(', ')', '`']);
    let words = words.filter(|word| word.starts_with("lock.") || word.starts_with("cache_lock."));
    let words = words.filter(|word| !word.ends_with('.'));
    let words: Vec<_> = words.collect();
    assert!(words.len() > 8, "{words:?}");
    for word in words {
        assert!(page.contains(&format!("`{word}`")), "docs/telemetry.md does not have {word}");
    }
}
