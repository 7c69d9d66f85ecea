//! [`Tour`]: every lock under every fault, some of them at the same time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use crate::fault::Fault;
use crate::hall::{HALL, Plate};
use crate::stage::{self, Cell};
use crate::table::Table;

/// The size of the tour.
#[derive(Clone, Copy, Debug)]
pub struct Tour {
    /// Repeats every random decision.
    pub seed: u64,
    /// How often each cell is played, with one seed after the other.
    pub takes: u64,
    /// The test of this binary that serves the processes; `None` when its `main` does.
    pub test: Option<&'static str>,
}

/// How many cells are played at the same time: they spend most of their time waiting.
const AT_ONCE: usize = 5;
/// A fault may miss on a busy machine. It is repeated at most this many times, until the expected result is seen.
const MORE_TAKES: u64 = 4;

impl Tour {
    /// Plays every cell; `progress` gets the number of finished cells, and of all.
    ///
    /// # Panics
    ///
    /// When a server or a process can't be started.
    #[must_use]
    pub fn play(&self, progress: impl Fn(usize, usize) + Sync) -> Table {
        let all: Vec<_> =
            Fault::ALL.into_iter().flat_map(|fault| HALL.iter().map(move |plate| (plate, fault))).collect();
        let next = Mutex::new(all.iter());
        let done = Mutex::new(Vec::new());
        thread::scope(|threads| {
            for _ in 0..AT_ONCE {
                threads.spawn(|| {
                    loop {
                        let job = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((plate, fault)) = job else { return };
                        let cell = self.cell(plate, *fault);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((plate.name, *fault, cell));
                        progress(done.len(), all.len());
                    }
                });
            }
        });
        Table::of(done.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn cell(&self, plate: &Plate, fault: Fault) -> Cell {
        let mut cell = Cell::default();
        let is_seen =
            |cell: &Cell| cell.hits > 0 && plate.wrong_under(fault).all(|promise| cell.broken.contains_key(&promise));
        for take in 0..self.takes + MORE_TAKES {
            if take >= self.takes && is_seen(&cell) {
                break;
            }
            cell.add(stage::play(plate, fault, self.seed.wrapping_add(take), self.test));
        }
        cell
    }
}
