//! Coverage counts the lines of a locked body: code that it counts has a counter in the compiled object.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lock's library, next to this program. An older build may have left another one; takes the newest.
fn runtime(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("liblock_runtime-") && name.ends_with(".rlib")
    };
    files.filter(is_library).max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
}

#[test]
fn the_body_of_a_locked_fn_is_counted() {
    let program = std::env::current_exe().unwrap();
    let libraries = program.parent().unwrap();
    let made = tempfile::tempdir().unwrap();
    let object = made.path().join("as_written.o");
    let outcome = Command::new("rustc")
        .args(["--edition=2021", "--crate-type=lib", "--emit=obj", "-Cinstrument-coverage", "-Ccodegen-units=1"])
        .arg("--cap-lints=allow")
        .arg(format!("-Ldependency={}", libraries.display()))
        .arg(format!("--extern=lock_runtime={}", runtime(libraries).display()))
        .arg("-o")
        .arg(&object)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"))
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let object = fs::read(&object).unwrap();
    let names = String::from_utf8_lossy(&object);
    let counted = |begin: &str, name: &str| {
        let mut names = names.split(['\0', '\u{fffd}']).filter_map(|text| text.split_once("__profc_"));
        names.any(|(_, counter)| counter.starts_with(begin) && counter.contains(name))
    };
    // The path of a closure begins with `NC`.
    assert!(counted("_RNv", "14without_a_lock"), "the fn without a lock has no counter");
    assert!(counted("_RNv", "13a_blocking_fn"), "a blocking fn");
    assert!(counted("_RNCNv", "13a_blocking_fn0"), "the body of a blocking fn");
    assert!(counted("_RNCNCNv", "11an_async_fn00"), "the body of an async fn");
}
