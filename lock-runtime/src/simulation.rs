//! The library's own code, down to the bytes on its connections, on a model server in virtual time.
//!
//! A world is made from a seed: processes (managers whose tasks use locks in every way), a network that delays, reorders between
//! connections, loses and cuts, a server that stops, and a host that is suspended. The same seed gives the same history, and the history
//! checker judges it. In other worlds the locks are on a quorum of such servers.

mod alarms;
mod burst;
mod cluster;
mod crowd;
mod delays;
mod embedded;
mod faults;
mod force;
mod foreign;
mod host;
mod journal;
mod key_sets;
mod late;
mod links;
mod majority;
mod network;
pub(crate) mod orders;
mod outage;
mod overload;
mod process;
mod pushes;
mod quorum;
mod record;
mod replacing;
mod rests;
mod scenes;
mod search;
mod seeded;
mod servers;
mod sharing;
mod stall;
mod tasks;
mod terms;
mod tests;
mod tickets;
pub(crate) mod time;
mod together;
mod unpolled;
mod world;
