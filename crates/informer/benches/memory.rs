//! How much memory an informer of 50,000 pods takes, settled and at its peaks: while it syncs, and when it has to list again with
//! 1 % or with all of the pods changed; by list and by watch-list.
//!
//! Server and client are processes of their own, so that neither is measured with the other: the server makes each pod while
//! it sends it. Live bytes are what the allocator has handed out, RSS is what the kernel has handed out. The counting
//! allocator grows a block by allocating the larger one first, so growing buffers weigh more here than with the system's own.
//!
//! `cargo bench -p informer --bench memory`, for a short run with `-- --objects 5000`.
#![allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]

#[path = "memory/client.rs"]
mod client;
#[path = "memory/gauge.rs"]
mod gauge;
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

/// Whatever went wrong; it ends the program.
type Failure = Box<dyn Error + Send + Sync>;

const HELP: &str = "\
Measures the memory of an informer that syncs pods from a server of its own, and lists them again.

    cargo bench -p informer --bench memory [-- OPTIONS]

    --objects N         how many pods [50000]
    --handlers N        how many handlers, each of which counts [1]
    --mode MODE         list or watch-list only [both]
    --compressed        the cache keeps its pods compressed; needs `--features compressed`
    --paged             the server answers lists in pages, as one without a watch cache does
    --help              this text

Prints one table; every row has its bar and whether it was met. Bars are meant for 50,000 pods; with fewer than some
thousands, what the process needs besides pods weighs too much. Rows without a bar are for information: RSS that stays
behind after a peak is memory that the system's allocator keeps for later. Progress goes to stderr. The exit code
says whether it ran, not whether the bars were met.";

/// How the first set is asked for.
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
        named.ok_or_else(|| format!("`{text}` is no mode, take list or watch-list").into())
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
            "--compressed" if cfg!(feature = "compressed") => plan.compressed = true,
            "--compressed" => return Err("build it with `--features compressed`".into()),
            "--bench" => {} // cargo says so to every bench
            _ => return Err(format!("unknown argument `{word}`, see --help").into()),
        }
    }
    if !(100..=world::MOST).contains(&plan.objects) {
        return Err(format!("--objects must be between 100 and {}", world::MOST).into());
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
    text.replace(['_', ','], "").parse().map_err(|_| format!("`{text}` is no count").into())
}
