//! The verbs, one file each.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod papers;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod watch;
pub(crate) mod who;
