//! `informer`: watches any resource of a cluster through shared informers, and runs the embedded API server.
//!
//! One file a command. Data goes to stdout, talk to stderr; exit codes are 0, 1 (it failed), 2 (it was called wrongly)
//! and 130 (asked twice to stop).

mod apiserver;
mod args;
mod cluster;
mod completions;
mod demo;
mod failure;
mod resolve;
mod show;
mod talk;
mod watch;

use args::{Args, Command};
use clap::Parser as _;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Args::parse().command.unwrap_or_else(Command::first_look);
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return Failure::new("no threads can be started", "is the system out of resources?").report();
    };
    let outcome = runtime.block_on(async {
        match command {
            Command::Watch(args) => watch::run(args).await,
            Command::Apiserver(args) => apiserver::run(args).await,
            Command::Completions { shell } => completions::run(shell),
        }
    });
    // A handler that waits for a reader of our output must not keep the program from ending.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
