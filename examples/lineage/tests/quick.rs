//! The quick tour: every published lock is caught where it is wrong, this project's lock never is, and the page shows both.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use museum::{Fault, HALL, Plate, Promise, Reel, Step, Table, Tour};
use tests::child;

/// Not a test: the processes of this file run it.
#[test]
fn worker() {
    if let Some(part) = child::role() {
        museum::serve(&part);
    }
}

#[test]
fn every_published_lock_is_caught_where_it_is_wrong_and_ours_keeps_every_promise() {
    let table = Tour { seed: 1, takes: 1, test: Some("worker") }.play(|_, _| {});
    println!("{table}");
    let mistakes = table.mistakes();
    assert!(mistakes.is_empty(), "{}\n{table}", mistakes.join("\n"));
    for (plate, fault) in HALL.iter().flat_map(|plate| Fault::ALL.map(|fault| (plate, fault))) {
        every_cell_has_its_steps(&table, plate, fault);
    }
    the_page_stands_alone_and_its_lessons_have_exhibits(&table);
}

fn overlaps(reel: &Reel) -> usize {
    reel.steps.iter().filter(|step| step.holders.len() > 1).count()
}

/// Whether two hold the lock, or the server has given one's lock to another that does not know it yet.
fn overlaps_with_another(step: &Step) -> bool {
    let has_other_owner = |holder| step.owner.as_ref().is_some_and(|owner| owner != holder);
    step.holders.len() > 1 || step.holders.iter().any(has_other_owner)
}

fn every_cell_has_its_steps(table: &Table, plate: &Plate, fault: Fault) {
    let cell = table.cell(plate, fault).unwrap();
    let name = format!("{}, {}", plate.name, fault.title().join(" "));
    for (promise, finding) in &cell.broken {
        let steps = &finding.reel.steps;
        assert!(steps.is_sorted_by_key(|step| step.at), "{name}: {steps:#?}");
        assert!(steps.iter().any(|step| step.is_broken), "{name}, {promise}: {steps:#?}");
        assert!(*promise != Promise::Exclusion || steps.iter().any(overlaps_with_another), "{name}: {steps:#?}");
    }
    if cell.broken.is_empty() {
        let kept = cell.kept.as_ref().unwrap();
        assert!(kept.steps.len() > 5 && overlaps(kept) == 0, "{name}: {:#?}", kept.steps);
        assert!(kept.steps.iter().all(|step| !step.is_broken), "{name}: {:#?}", kept.steps);
    }
}

fn the_page_stands_alone_and_its_lessons_have_exhibits(table: &Table) {
    let page = museum::page(table);
    for outside in ["http", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let links: Vec<_> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 5, "{links:?}");
    for link in links {
        let mut parts = link.trim_start_matches('#').split('/');
        let plate = Plate::named(parts.next().unwrap()).unwrap();
        let fault = parts.next().unwrap();
        let fault = Fault::ALL.into_iter().find(|one| format!("{one:?}") == fault).unwrap();
        let cell = table.cell(plate, fault).unwrap();
        match parts.next() {
            Some(number) => {
                let is_it = |promise: &Promise| promise.number().to_string() == number;
                assert!(cell.broken.keys().any(is_it), "{link}: {:?}", cell.broken.keys());
            }
            // Nothing is promised here, so nothing is broken: a task is passed over.
            None => assert!(cell.kept.as_ref().unwrap().passed_over > 0, "{link}"),
        }
    }
}
