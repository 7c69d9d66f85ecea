//! The searches that the tests exhaust.

use super::{Faults, Mode, Sharing};

/// All of them, with their names.
#[must_use]
pub fn searches() -> Vec<(&'static str, Sharing)> {
    let of = |modes: &[Mode], rounds, faults| Sharing { modes: modes.to_vec(), rounds, faults, without: None };
    let none = Faults::default();
    let (alone, read, permit) = (Mode::Alone, Mode::Read(1), Mode::Permit(2));
    vec![
        ("readers and a writer", of(&[Mode::Read(2), read, alone], 2, none)),
        ("readers and two writers", of(&[Mode::Read(2), alone, alone], 2, none)),
        ("permits", of(&[permit, permit, permit, permit], 1, none)),
        ("permits and one alone", of(&[permit, permit, permit, alone], 1, none)),
        ("permits of several numbers", of(&[Mode::Permit(1), permit, Mode::Permit(3)], 2, none)),
        ("vanished", of(&[Mode::Read(2), alone, read], 1, Faults { vanishes: 1, ..none })),
        ("crashed", of(&[read, alone, alone, read], 1, Faults { crashes: 1, cancels: 1, ..none })),
        ("vanished permits", of(&[permit, permit, permit], 2, Faults { vanishes: 1, ..none })),
        ("lost pushes", of(&[Mode::Read(2), read, alone], 1, Faults { lost_pushes: 2, ..none })),
        ("cancels", of(&[Mode::Read(2), permit, alone], 2, Faults { cancels: 2, ..none })),
        ("deletes", of(&[read, read, alone], 2, Faults { deletes: 1, ..none })),
        ("lags", of(&[Mode::Read(2), permit, alone], 1, Faults { lags: 3, ..none })),
        ("lingering", of(&[Mode::Read(2), read, alone], 2, Faults { lingers: 2, ..none })),
        ("lingering beside a permit", of(&[read, permit, alone], 2, Faults { lingers: 2, lags: 1, ..none })),
        ("lingering, vanished", of(&[read, read, alone], 2, Faults { lingers: 2, vanishes: 1, ..none })),
        ("lingering, lost pushes", of(&[read, read, alone], 2, Faults { lingers: 2, lost_pushes: 1, ..none })),
    ]
}
