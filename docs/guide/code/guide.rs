//! The Rust of the guide. Each snippet of a chapter is a test of this crate, except those of "Five minutes" and of "Testing":
//! these are parts of `hall.rs` and `testing.rs`, as a reader has them in a file, and a test compares them.

#[cfg(test)]
mod testing;

macro_rules! chapters {
    ($($name:ident: $text:literal)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($text)]
            mod $name {}
        )*

        /// The chapters whose snippets rustdoc compiles.
        #[cfg(test)]
        const COMPILED: &[&str] = &[$(include_str!($text)),*];
    };
}

chapters! {
    choosing: "../choosing.md"
    connections: "../connections.md"
    errors: "../errors.md"
    modes: "../modes.md"
    moving: "../moving.md"
    others: "../others.md"
    questions: "../questions.md"
    transactions: "../transactions.md"
    versions: "../versions.md"
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::COMPILED;

    /// The snippets of a chapter that rustdoc does not compile.
    fn parts(chapter: &str) -> Vec<&str> {
        let blocks = chapter.split("\n```rust,ignore\n").skip(1);
        blocks.filter_map(|block| block.split("\n```").next()).collect()
    }

    #[test]
    fn the_snippets_that_are_no_tests_are_parts_of_files() {
        let chapters = [
            (include_str!("../start.md"), include_str!("hall.rs")),
            (include_str!("../testing.md"), include_str!("testing.rs")),
        ];
        for (chapter, file) in chapters {
            let parts = parts(chapter);
            assert!(parts.len() > 2, "not read: {parts:?}");
            for part in parts {
                assert!(file.contains(part), "no part of the file:\n{part}");
            }
        }
    }

    #[test]
    fn every_other_chapter_is_compiled_as_a_whole() {
        assert!(COMPILED.iter().all(|chapter| parts(chapter).is_empty()));
        let pages =
            fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap().map(|entry| entry.unwrap().path());
        let chapters = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")).count();
        assert_eq!(chapters, COMPILED.len() + 2, "a chapter is missing in this file");
    }
}
