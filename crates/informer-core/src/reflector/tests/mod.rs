//! Tests of the reflector, by phase. Most tests are scripts, in the language of `script`.
//!
//! Comments name the guarantees that a test checks (`C1`…, in the book), and the bugs of kube-rs that it excludes (`P1`…).

mod any_server;
mod audit;
mod bad_input;
mod encoding;
mod listing;
mod pages;
mod saved;
mod script;
mod short_watches;
mod silence;
mod states;
mod transform;
mod unavailable;
mod watching;
mod watchlist;
mod watchlist_progress;

use script::check;
