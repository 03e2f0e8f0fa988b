//! The reflector, one script per rule. `script` is the language; the rest are the rules, by state.

mod any_server;
mod audit;
mod bad_input;
mod encoding;
mod listing;
mod script;
mod standing;
mod transform;
mod unavailable;
mod watching;
mod watchlist;

use script::check;
