//! Locks on a majority, over servers in memory that fail as they are told, in paused time.
