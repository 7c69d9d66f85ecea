//! What packages install along with the program.

use crate::{lockctl, text};

#[test]
fn there_are_completions_and_a_man_page() {
    for shell in ["bash", "zsh", "fish"] {
        let shown = lockctl(&["completions", shell]).assert().success();
        assert!(text(&shown.get_output().stdout).contains("release"), "{shell}");
    }
    let man = lockctl(&["man"]).assert().success();
    let man = text(&man.get_output().stdout);
    assert!(man.contains(".TH lockctl") && man.contains("75 the lock is busy"), "{man}");
    assert!(!text(&lockctl(&["--help"]).assert().success().get_output().stdout).contains("completions"));
}
