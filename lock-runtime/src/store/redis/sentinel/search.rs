//! [`Search`]: which servers were tried, and which of them the sentinels name.

use redis::ConnectionAddr;

use super::super::failure::CallError;
use super::super::greeting::Greeted;
use super::super::wire::Peer;
use super::listener::Choice;

/// The search for a master, while sentinels are asked and servers are tried.
#[derive(Default)]
pub(super) struct Search {
    /// Every server that was tried, or is being tried.
    pub(super) tried: Vec<ConnectionAddr>,
    named: Vec<Choice>,
    greeted: Vec<(ConnectionAddr, Greeted)>,
    failed: Vec<(ConnectionAddr, CallError)>,
    /// The error when there is no master. The error of a named server says more than the error of a sentinel that is down.
    pub(super) of_master: Option<CallError>,
    pub(super) of_sentinels: Option<CallError>,
}

impl Search {
    /// Takes in the outcome of trying a server.
    pub(super) fn on_outcome(&mut self, master: &Peer, outcome: Result<Greeted, CallError>) {
        match outcome {
            Ok(greeted) => self.greeted.push((master.addr().clone(), greeted)),
            Err(error) => self.failed.push((master.addr().clone(), error)),
        }
    }

    /// Takes in a sentinel's choice. Returns whether the server still has to be tried.
    pub(super) fn on_choice(&mut self, choice: &Choice) -> bool {
        self.named.push(choice.clone());
        let is_new = !self.tried.contains(choice.master.addr());
        if is_new {
            self.tried.push(choice.master.addr().clone());
        }
        is_new
    }

    /// A server that a sentinel named, and that says of itself that it is a master.
    pub(super) fn take_master(&mut self) -> Option<(Choice, Greeted)> {
        let is_named = |addr: &ConnectionAddr| self.named.iter().rposition(|choice| choice.master.addr() == addr);
        let (place, named) =
            self.greeted.iter().enumerate().find_map(|(place, (addr, _))| Some((place, is_named(addr)?)))?;
        Some((self.named.get(named)?.clone(), self.greeted.swap_remove(place).1))
    }

    /// The error when there is no master. The failure of a server that no sentinel names does not matter.
    pub(super) fn into_error(self) -> CallError {
        let is_named = |addr: &ConnectionAddr| self.named.iter().any(|choice| choice.master.addr() == addr);
        let of_named = self.failed.into_iter().rfind(|(addr, _)| is_named(addr)).map(|(_, error)| error);
        let nobody = || CallError::Unsuitable("no sentinel could be asked".to_owned());
        of_named.or(self.of_master).or(self.of_sentinels).unwrap_or_else(nobody)
    }
}
