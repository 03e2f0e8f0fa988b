//! `informer`: watches any resource of a cluster through shared informers, and runs the embedded API server.
//!
//! One file per command. Data goes to stdout, messages to stderr; exit codes are 0, 1 (failure), 2 (invalid command
//! line) and 130 (stopped before the output was complete, or stopped twice).

mod apiserver;
mod args;
mod cli_error;
mod cluster;
mod completions;
mod demo;
mod explain;
mod man;
mod resolve;
mod shards;
mod show;
mod terminal;
mod usage;
mod watch;

use args::{Args, Command};
use cli_error::CliError;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return CliError::no_threads().report();
    };
    if let [_, command, what, words @ ..] = &args[..]
        && command == completions::COMPLETE_COMMAND
    {
        runtime.block_on(completions::complete(&what.to_string_lossy(), words));
        runtime.shutdown_background();
        return ExitCode::SUCCESS;
    }
    // Before the first error.
    anstream::ColorChoice::from(args::Color::find(&args)).write_global();
    if let Some(number) = args::number_after_demo(&args) {
        let hint = format!("set the number of pods with --demo-pods {number}");
        return CliError::usage("--demo takes no value", hint).report();
    }
    let args = match Args::try_parse_colored(&args) {
        Ok(args) => args,
        Err(error) => return usage::explain(&error).unwrap_or_else(|| error.exit()).report(),
    };
    let command = args.into_command().unwrap_or_else(|error| error.exit());
    let outcome = runtime.block_on(async {
        match command {
            Command::Watch(args) => watch::run(args).await,
            Command::Get(args) => watch::run(args.into_watch()).await,
            Command::Apiserver(args) => apiserver::run(args).await,
            Command::Shards(args) => shards::run(args).await,
            Command::Explain { state } => explain::run(state.as_deref()),
            Command::Completions { shell } => completions::run(shell),
            Command::Man { command } => man::run(command.as_deref()),
        }
    });
    // A handler blocked on stdout must not delay the exit.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
