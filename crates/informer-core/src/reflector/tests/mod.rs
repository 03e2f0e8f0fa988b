//! Tests of the reflector, by phase. Most tests are scripts, in the language of `script`.

mod any_server;
mod audit;
mod bad_input;
mod encoding;
mod listing;
mod script;
mod states;
mod transform;
mod unavailable;
mod watching;
mod watchlist;

use script::check;
