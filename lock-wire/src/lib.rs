#![doc = include_str!("../README.md")]
#![allow(
    missing_debug_implementations,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::missing_errors_doc,
    reason = "lock-runtime alone calls what is public here"
)]

/// The TLS library. A [`Trust`] may contain its [`ClientConfig`](rustls::ClientConfig).
#[cfg(feature = "tls")]
pub use rustls;

#[macro_use]
mod mutants;

mod address;
pub mod clock;
mod cluster;
mod endpoint;
mod failure;
pub mod fork;
mod greeting;
mod hash_slot;
mod link;
pub mod mutex;
mod sentinel;
mod servers;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod wire;

pub use address::{Address, AddressError, Mistake, Target};
pub use cluster::Cluster;
pub use cluster::seeds::Seeds;
pub use cluster::topology::Topology;
pub use endpoint::Endpoint;
pub use failure::{CallError, Reach, is_full};
pub use greeting::{Ability, is_known_command};
pub use hash_slot::NodeId;
pub use link::{
    Anchor, Called, Channel, Command, Common, Events, Known, Link, Live, Outgoing, Purpose, Source, Spawn, Status,
};
pub use servers::Servers;
pub use wire::{
    Columns, Credentials, Ended, Follower, Grouped, LAST_LOOK, Login, Merge, NoReply, Provider, Sender, Sent, Socket,
    Trust, encode, integer, text,
};
