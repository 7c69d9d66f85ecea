//! How much of the lock is compiled again in a user's crate, which is what a locked fn costs each of its builds.
//!
//! The package `user` has one locked fn, and calls each public async method. An `async fn` is compiled where it is awaited. So if a
//! public method does not box its future, every user compiles all the code behind it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// The measured values are 90 and 41,824; this adds a tenth. Before the public methods boxed their futures, they were 1,860 and 1,058,907.
const MOST_FUNCTIONS: usize = 100;
const MOST_BYTES: u64 = 46_000;

/// The compiled library of the package `user`, next to this program. An older build may have left another one; takes the newest.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let made = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let files = fs::read_dir(program.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libuser-") && name.ends_with(".rlib")
    };
    files.filter(is_library).max_by_key(made).expect("the package is a dependency of this program")
}

#[test]
fn a_users_crate_compiles_little_of_the_lock() {
    let bytes = fs::read(library()).unwrap();
    let archive = ArchiveFile::parse(&*bytes).unwrap();
    let objects =
        archive.members().filter_map(|member| object::File::parse(member.unwrap().data(&*bytes).unwrap()).ok());
    let (mut functions, mut size) = (0, 0);
    for object in objects {
        for symbol in object.symbols().filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text) {
            functions += 1;
            size += symbol.size();
        }
    }
    assert!(functions > 0, "nothing was read");
    let found = format!("{functions} functions, {size} bytes");
    assert!(functions <= MOST_FUNCTIONS && size <= MOST_BYTES, "a user's crate compiles more of the lock: {found}");
}

/// Compile times vary, so this checks the depth of the compiler's proof for a generic method. At commit 2934d0ad it was more than 64,
/// and a method took 0.4 s; now it is below 24, and a method takes 0.02 s.
#[test]
fn proving_that_a_generic_future_with_a_lock_is_send_is_shallow() {
    let user = library();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--extern"])
        .arg(format!("user={}", user.display()))
        .arg(format!("-Ldependency={}", user.parent().unwrap().display()))
        .arg("--out-dir")
        .arg(folder.path())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("user/generic_methods.rs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
