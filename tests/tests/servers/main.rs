//! The places for locks: what each adds to a single server, and what happens when its servers fail.

mod abilities;
mod alarms;
mod away;
mod cluster;
mod credentials;
mod failovers;
mod far;
mod force;
mod listening;
mod quorum;
mod quorum_crowd;
mod replicas;
mod rights;
mod sentinel;
mod tls;
mod tls_places;
mod topologies;
mod urls;
