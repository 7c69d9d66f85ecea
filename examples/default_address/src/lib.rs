//! The story's address book: SQLite or Postgres, with real transactions. Nothing here knows about locks.

mod book;
mod database;

pub use book::AddressBook;
pub use database::Database;
