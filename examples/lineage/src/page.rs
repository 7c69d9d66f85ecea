//! The museum as a page: a single file, which needs no network.

use serde::Serialize;

use crate::fault::Fault;
use crate::hall::HALL;
use crate::reel::Reel;
use crate::table::Table;
use crate::verdict::Promise;

/// The data that the page's script reads.
#[derive(Serialize)]
struct Data<'a> {
    faults: Vec<Column>,
    promises: Vec<Broken>,
    locks: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Column {
    id: Fault,
    title: String,
    about: &'static str,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'static str,
    about: &'static str,
    is_published: bool,
    /// One for each fault.
    cells: Vec<Vec<Shown<'a>>>,
}

/// A reel with the promise whose breach it shows.
#[derive(Serialize)]
struct Shown<'a> {
    promise: Option<Broken>,
    reel: &'a Reel,
}

#[derive(Serialize)]
struct Broken {
    number: u8,
    name: String,
    means: &'static str,
}

impl Broken {
    fn of(promise: Promise) -> Self {
        Self { number: promise.number(), name: promise.to_string(), means: promise.means() }
    }
}

/// The page of a table, as HTML.
///
/// # Panics
///
/// Never: all that it shows is plain data.
#[must_use]
pub fn page(table: &Table) -> String {
    let faults = Fault::ALL.map(|id| Column { id, title: id.title().join(" "), about: id.about() });
    let locks = HALL.iter().map(|plate| Row {
        name: plate.name,
        about: plate.about,
        is_published: plate.is_published(),
        cells: Fault::ALL.map(|fault| table.cell(plate, fault).map(shown).unwrap_or_default()).into(),
    });
    let promises = Promise::ALL.map(Broken::of);
    let data = Data { faults: faults.into(), promises: promises.into(), locks: locks.collect() };
    // Nothing inside a script element may look like its end.
    let data = serde_json::to_string(&data).expect("plain data").replace('<', "\\u003c");
    include_str!("page/page.html")
        .replace("/* style */", include_str!("page/page.css"))
        .replace("/* script */", include_str!("page/page.js"))
        .replace("/* data */", &data)
}

fn shown(cell: &crate::stage::Cell) -> Vec<Shown<'_>> {
    let broken =
        cell.broken.iter().map(|(promise, finding)| Shown { promise: Some(Broken::of(*promise)), reel: &finding.reel });
    let kept = cell.kept.iter().filter(|_| cell.broken.is_empty()).map(|reel| Shown { promise: None, reel });
    broken.chain(kept).collect()
}
