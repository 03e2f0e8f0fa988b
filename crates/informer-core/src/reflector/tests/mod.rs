//! The reflector, one script per rule. `script` is the language; the rest are the rules, by state.

mod any_server;
mod audit;
mod away;
mod bad_input;
mod form;
mod listing;
mod script;
mod standing;
mod transform;
mod watching;
mod watchlist;

use script::check;
