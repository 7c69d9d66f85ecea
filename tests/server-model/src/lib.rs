//! A Redis server without sockets and without its own clock: the caller passes commands and the time, and gets replies and
//! pushes. It runs the lock's own Lua files, in the Lua version of Redis.
//!
//! Scripts take no time, or as much as [`ModelServer::set_pace`] says; then time passes between their commands.
//!
//! `data` has the commands on keys, which scripts call, too; `connection` has the commands about a connection;
//! `scripts` stores the scripts, `interpreter` runs them, `convert` converts values between Lua and the server.
//! `tests/tests/checks/model_server.rs` compares it with real servers; its error texts are those of Redis 7.0.
//!
//! The nodes of a cluster share the same keys, and each has a part of the slots: no write is lost when a slot moves. A sharded
//! message reaches the subscribers on all nodes, and only those on the publishing node are counted.
//!
//! It has no other databases, no users, no transactions, no memory limit, no persistence, no RESP2, and no commands that
//! neither the lock nor its tests send.

mod channels;
mod clock;
mod cluster;
mod command;
mod connection;
mod convert;
mod data;
mod interpreter;
mod keyspace;
mod reply;
mod scripts;
mod server;
mod sorted;
mod tracking;

pub use clock::ScriptTime;
pub use cluster::slot_of;
pub use command::take_command;
pub use reply::Reply;
pub use server::{Client, Entry, ModelServer, Stored};
