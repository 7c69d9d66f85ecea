//! Shared by the integration tests: test-owned servers, a proxy that injects faults, and ways to make managers.

pub mod aof;
pub mod child;
pub mod clock;
pub mod cluster;
pub mod events;
pub mod outage;
pub mod patience;
pub mod proxy;
pub mod quorum;
pub mod report;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod soak;
pub mod spans;
pub mod stores;
pub mod tls;
pub mod wire;
