//! Where the story keeps its addresses: SQLite or Postgres, with real transactions. Nothing here knows of locks.

mod book;
mod database;

pub use book::AddressBook;
pub use database::Database;
