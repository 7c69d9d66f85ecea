//! The faults of the nemesis, in words.

use crate::soak::lookout::UNPLANNED;

/// Every fault: its name in histories, and the words for the page.
pub const FAULTS: &[(&str, &str)] = &[
    ("StopWorker", "a process stands still"),
    ("KillWorker", "a process is killed"),
    ("KillClients", "a server cuts its clients off"),
    ("KillSubscribers", "a server cuts its subscribers off"),
    ("FlushScripts", "a server forgets its scripts"),
    ("PauseAll", "a server answers nobody for a while"),
    ("PauseWrites", "a server carries out no write for a while"),
    ("SleepServer", "a server sleeps in the middle of its work"),
    ("DelayCommand", "a command is late"),
    ("DelayReply", "a reply is late"),
    ("CutBeforeCommand", "a connection breaks before a command"),
    ("CutAfterCommand", "a connection breaks before a reply"),
    ("MuteFromReply", "a connection swallows a reply and all that follows"),
    ("DeafLine", "a connection swallows commands"),
    ("MuteLine", "a connection swallows replies"),
    ("BlackHole", "a connection swallows everything"),
    ("ResetLine", "a connection is reset"),
    ("StopServer", "the server stands still"),
    ("RestartServer", "the server restarts with its data"),
    ("KillServer", "the server is killed, and started again with its data"),
    ("FlushAll", "the server is emptied"),
    ("RestartEmpty", "the server restarts without its data"),
    ("FailOver", "a failover that was asked for"),
    ("KillMaster", "a master is killed"),
    ("StopMaster", "a master stands still"),
    ("StopMasterUntilReplaced", "a master stands still until it is replaced"),
    ("MoveSlots", "slots move to other masters"),
    ("StopOne", "one server of several stands still"),
    ("CutOffOne", "one server of several is cut off"),
    ("RestartOne", "one server of several restarts with its data"),
    ("RestartOneEmpty", "one server of several restarts without its data"),
    (UNPLANNED, "a failover that nobody asked for"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::places;

    #[test]
    fn every_fault_of_every_place_has_its_words() {
        for (_, place) in places() {
            for (kind, _) in place.kinds(true) {
                assert!(FAULTS.iter().any(|(name, _)| *name == format!("{kind:?}")), "{kind:?}");
            }
        }
    }
}
