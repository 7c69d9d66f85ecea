//! The page in a headless Chromium: every exhibit is shown, steps go forward and back, and an overlap can be seen.
//!
//! Only with `./test.sh --all`: it plays its own tour. `MUSEUM_PAGE=FILE` walks through a page that was written before.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use museum::{Fault, HALL, Tour};
use serde::Deserialize;
use tests::child;

/// Not a test: the processes of this file run it.
#[test]
fn worker() {
    if let Some(part) = child::role() {
        museum::serve(&part);
    }
}

/// What `walk.js` saw of one reel.
#[derive(Debug, Deserialize)]
struct Seen {
    lock: String,
    title: String,
    /// The promise that its verdict reports as broken.
    promise: Option<u8>,
    /// How many runs are next to each other.
    runs: usize,
    steps: usize,
    /// How many steps of the exhibit are visible at first, then after each of three keys: forward, forward, back.
    shown: [usize; 4],
    /// How many are visible at its end.
    at_end: usize,
    /// Steps with a hatched and labelled overlap, at the end: of the exhibit, and of ours.
    overlaps: usize,
    /// Late writes that the store took, and that it refused.
    lost: usize,
    refused: usize,
    ours: usize,
}

#[test]
fn every_exhibit_is_shown_step_by_step_and_an_overlap_is_seen_where_there_is_one() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("skipped: no Chromium here");
        return;
    }
    let page = std::env::var("MUSEUM_PAGE").map_or_else(
        |_| museum::page(&Tour { seed: 1, takes: 1, test: Some("worker") }.play(|_, _| {})),
        |file| std::fs::read_to_string(file).unwrap(),
    );
    let folder = tempfile::tempdir().unwrap();
    let walk = concat!("<pre id=\"walk\"></pre><script>", include_str!("walk.js"), "</script></html>");
    let file = folder.path().join("museum.html");
    std::fs::write(&file, page.replace("</html>", walk)).unwrap();
    let seen = walked(&file, folder.path());
    let of = |lock: &str| seen.iter().filter(move |seen| seen.lock == lock).collect::<Vec<_>>();
    for plate in &HALL {
        let titles = Fault::ALL.map(|fault| format!("{}, {}", plate.name, fault.title().join(" ")));
        for title in titles {
            assert!(of(plate.name).iter().any(|seen| seen.title == title), "{title} is not shown");
        }
    }
    for seen in &seen {
        assert!(seen.shown == [1, 2, 3, 2] && seen.steps > 2 && seen.at_end == seen.steps, "{seen:?}");
        assert_eq!(seen.runs, if seen.lock == "ours" { 1 } else { 2 }, "{seen:?}");
        assert_eq!(seen.ours, 0, "{seen:?}");
        assert!(seen.promise != Some(1) || seen.overlaps > 0, "{seen:?}");
        assert!(seen.lock != "ours" || seen.promise.is_none() && seen.overlaps == 0, "{seen:?}");
    }
    assert!(seen.iter().any(|seen| seen.promise == Some(1)));
    // When the holder is too slow or cut off, one of its writes arrives late.
    let late = |fault: &str| seen.iter().filter(move |seen| seen.title.ends_with(fault)).collect::<Vec<_>>();
    for fault in [Fault::SlowHolder, Fault::CutOff].map(|fault| fault.title().join(" ")) {
        let (ours, others): (Vec<_>, Vec<_>) = late(&fault).into_iter().partition(|seen| seen.lock == "ours");
        assert!(ours.iter().all(|seen| seen.lost == 0 && seen.refused == 1), "{fault}: {ours:?}");
        assert!(others.iter().any(|seen| seen.lost == 1) && others.iter().all(|seen| seen.refused == 0), "{fault}");
    }
}

/// Opens the file as a visitor would, and reads the result of the walk.
fn walked(file: &Path, folder: &Path) -> Vec<Seen> {
    let mut browser = Command::new("chromium");
    // Chromium's sandbox refuses to run as root, as tests in containers do. The only page is our own.
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let output = browser.arg(format!("file://{}", file.display())).output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let walk = dom.split("<pre id=\"walk\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let walk = walk.unwrap_or_default().replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&");
    serde_json::from_str(&walk).unwrap_or_else(|error| panic!("{error}: {walk}"))
}
