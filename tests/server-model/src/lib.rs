//! A Redis server without sockets and without a clock of its own: commands go in with the time, replies and pushes come
//! out. It runs the very Lua files of the lock, on the Lua that Redis has.
//!
//! Scripts take no time, or as much as [`ModelServer::set_pace`] says: then time passes between their commands.
//!
//! `data` has the commands on keys, which scripts call as well; `connection` those that are about one connection;
//! `scripts` knows the texts, `interpreter` runs them, `convert` is what passes between Lua and the server.
//! `tests/tests/checks/model_server.rs` checks that it does what real servers do; the words of its errors are those of Redis 7.0.
//!
//! Several nodes of a cluster are several doors to the same keys, with the slots shared out among them: no write is lost when a
//! slot moves. A sharded message reaches the listeners of all nodes, and only the publishing node's are counted.
//!
//! Not in it: other databases, users, transactions, memory that runs out, persistence, RESP2, and all commands that
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
