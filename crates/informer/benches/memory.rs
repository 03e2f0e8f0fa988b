//! Memory of an informer of 50,000 pods, settled and at its peaks: during the initial sync, and during
//! relists with 1 % or all of the pods changed; with lists and with watch-lists.
//!
//! Server and client are separate processes, so that each is measured alone: the server generates each pod
//! while sending it. Live bytes are counted by the allocator, RSS by the kernel. The counting allocator grows
//! a block by allocating the larger one first, so growing buffers cost more here than with the system
//! allocator.
//!
//! `cargo bench -p informer --bench memory`; `-- --objects 5000` for a short run.
#![allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]

#[path = "memory/client.rs"]
mod client;
#[path = "memory/process_stats.rs"]
mod process_stats;
#[path = "memory/report.rs"]
mod report;
#[path = "memory/run.rs"]
mod run;
#[path = "memory/server.rs"]
mod server;
#[path = "memory/world.rs"]
mod world;

use std::error::Error;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Any error; it ends the program.
type Failure = Box<dyn Error + Send + Sync>;

const HELP: &str = "\
Measures the memory of an informer that syncs pods from its own server and relists them.

    cargo bench -p informer --bench memory [-- OPTIONS]

    --objects N         number of pods [50000]
    --handlers N        number of handlers, which count events [1]
    --mode MODE         list or watch-list only [both]
    --compressed        compress the cached pods; needs `--features compression`
    --paged             the server pages lists, as one without a watch cache does
    --help              this text

Prints one table; rows show their target and whether it was met. Targets are for 50,000 pods; with fewer than some
thousands, the fixed costs of the process dominate. Rows without a target are for information: RSS that remains
after a peak is memory that the system allocator retains. Progress is printed to stderr. The exit code
tells whether the benchmark ran, not whether the targets were met.";

/// How the initial list is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    List,
    WatchList,
}

impl Mode {
    const BOTH: [Self; 2] = [Self::List, Self::WatchList];

    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::WatchList => "watch-list",
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let named = Self::BOTH.into_iter().find(|mode| mode.name() == text);
        named.ok_or_else(|| format!("unknown mode `{text}` (list or watch-list)").into())
    }
}

/// What to measure.
struct Plan {
    objects: usize,
    handlers: usize,
    modes: Vec<Mode>,
    paged: bool,
    compressed: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [server::COMMAND, objects, paged] => serve(objects, paged),
        [client::COMMAND, port, objects, handlers, mode, compressed] => {
            measure(port, objects, handlers, mode, compressed == "true")
        }
        _ if words.iter().any(|word| matches!(*word, "--help" | "-h")) => {
            println!("{HELP}");
            Ok(())
        }
        _ => plan(&words).and_then(|plan| run::run(&plan)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("memory: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn plan(words: &[&str]) -> Result<Plan, Failure> {
    let modes = Mode::BOTH.to_vec();
    let mut plan = Plan { objects: 50_000, handlers: 1, modes, paged: false, compressed: false };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().ok_or_else(|| format!("`{word}` needs a value, see --help"));
        match word {
            "--objects" => plan.objects = count(value()?)?,
            "--handlers" => plan.handlers = count(value()?)?,
            "--mode" => plan.modes = vec![Mode::parse(value()?)?],
            "--paged" => plan.paged = true,
            "--compressed" if cfg!(feature = "compression") => plan.compressed = true,
            "--compressed" => return Err("--compressed needs `--features compression`".into()),
            "--bench" => {} // passed by cargo to every benchmark
            _ => return Err(format!("unknown argument `{word}`, see --help").into()),
        }
    }
    if !(100..=world::MAX_OBJECTS).contains(&plan.objects) {
        return Err(format!("--objects must be between 100 and {}", world::MAX_OBJECTS).into());
    }
    Ok(plan)
}

fn serve(objects: &str, paged: &str) -> Result<(), Failure> {
    server::run(world::World::new(count(objects)?), paged == "true")
}

fn measure(port: &str, objects: &str, handlers: &str, mode: &str, compressed: bool) -> Result<(), Failure> {
    client::run(port.parse()?, count(objects)?, count(handlers)?, Mode::parse(mode)?, compressed)
}

fn count(text: &str) -> Result<usize, Failure> {
    text.replace(['_', ','], "").parse().map_err(|_| format!("`{text}` is not a count").into())
}
