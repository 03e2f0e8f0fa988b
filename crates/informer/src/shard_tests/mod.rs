//! Informers and controllers of hash ranges, against the embedded server. The tests publish the views that a shard group
//! would publish.

mod controllers;
mod informers;
mod regressions;
