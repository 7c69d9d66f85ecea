//! What checks the lock can fail itself, and what a user gets wrong is told.

mod bad_input;
mod checker;
mod layers;
mod model_server;
mod pages;
mod proxy;
mod rules;
mod secrets;
mod surroundings;
mod telemetry;
mod track_record;
mod users_build;
