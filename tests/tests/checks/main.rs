//! Checks of the checkers, of the docs, of telemetry, and of the errors for a user's mistakes.

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
mod wire_format;
