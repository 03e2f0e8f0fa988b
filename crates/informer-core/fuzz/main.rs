//! Damages what real servers sent, and reads it: `cargo xtask fuzz` builds and starts this.
//!
//! Each input is made from the seed and its number alone, so a number is enough to see it again. What has to hold for an input is in
//! `check`. An input that breaks a promise is made shorter and saved. The number of the input at hand is noted in a file, for what no
//! program survives: a stack that is used up.

mod chance;
mod change;
mod check;
mod json;
mod protobuf;
mod reflect;
mod seeds;

use check::{Case, Tally};
use informer_core::random::Random;
use peak_alloc::PeakAlloc;
use seeds::{Seed, What};
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts what reading an input takes.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Where the last panic was, and what it said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// As much as the threads have on which a program reads; there a stack that is used up ends the program.
const STACK: usize = 2 << 20;
/// After so many failures there is enough to do.
const MAX_FINDINGS: usize = 10;

/// What it is called with, all of it by `cargo xtask fuzz`.
struct Options {
    seconds: u64,
    seed: u64,
    /// So many at most.
    inputs: Option<u64>,
    /// One input alone.
    input: Option<u64>,
    recordings: PathBuf,
    /// Where failures are saved.
    failures: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> Option<Self> {
        let [seconds, seed, inputs, input, recordings, failures] = args else { return None };
        let all_or = |text: &String| if text == "all" { Some(None) } else { text.parse().ok().map(Some) };
        Some(Self {
            seconds: seconds.parse().ok()?,
            seed: seed.parse().ok()?,
            inputs: all_or(inputs)?,
            input: all_or(input)?,
            recordings: recordings.into(),
            failures: failures.into(),
        })
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = Options::parse(&args) else {
        eprintln!("usage: cargo xtask fuzz [--seconds N] [--inputs N] [--seed S] [--input N]");
        return ExitCode::from(2);
    };
    panic::set_hook(Box::new(|panic| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("panic: {panic}").replace('\n', " ");
    }));
    let work = std::thread::Builder::new().stack_size(STACK).spawn(move || run(&options));
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(0))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(_))) => ExitCode::FAILURE,
        Ok(Ok(Err(why))) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
        _ => {
            eprintln!("error: the fuzzer itself: {}", panic_message());
            ExitCode::FAILURE
        }
    }
}

fn panic_message() -> String {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Reads inputs until the time is over; how many of them broke a promise.
fn run(options: &Options) -> Result<usize, String> {
    let seeds = seeds::all(&options.recordings)?;
    fs::create_dir_all(&options.failures).map_err(|error| format!("no folder for failures: {error}"))?;
    let noted = options.failures.join("at");
    let mut note = File::create(&noted).map_err(|error| format!("cannot note inputs: {error}"))?;
    let begun = Instant::now();
    let (mut tally, mut failed, mut number, mut shown) = (Tally::default(), 0, 0, 0);
    loop {
        let took = begun.elapsed();
        let enough = options.inputs.is_some_and(|inputs| number >= inputs) || failed >= MAX_FINDINGS;
        let over = took >= Duration::from_secs(options.seconds) || enough;
        if options.input.map_or(over, |_| number > 0) {
            break;
        }
        if took.as_secs() > shown {
            shown = took.as_secs();
            eprintln!("{shown} s: {number} inputs, {failed} failed");
        }
        let index = options.input.unwrap_or(number);
        // Without it only a lost stack is harder to find.
        let _ = note.rewind().and_then(|()| write!(note, "{index:<20}"));
        let case = input(&seeds, options.seed, index);
        if options.input.is_some() {
            save(options, index, &case, "read once more")?;
        }
        if let Err(why) = tried(&case, &mut tally) {
            failed += 1;
            let (case, why) = shortened(case, why);
            let path = save(options, index, &case, &why)?;
            eprintln!("input {index} of seed {}: {why}\n  saved as {}", options.seed, path.display());
        }
        number += 1;
    }
    let _ = fs::remove_file(noted);
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = number as f64 / seconds;
    println!(
        "seed {}: {number} inputs from {} bodies in {seconds:.1} s ({rate:.0} per second), {failed} failed",
        options.seed,
        seeds.len()
    );
    print!("{tally}");
    Ok(failed)
}

/// The input with this number.
fn input(seeds: &[Seed], seed: u64, index: u64) -> Case {
    let mut random = Random::new(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
    let pick = |random: &mut Random| &seeds[chance::below(random, seeds.len())];
    let (mut own, other) = (pick(&mut random), pick(&mut random));
    // There are as many refusals as anything else, and less to find in them.
    if own.what == What::Status && random.below(4) > 0 {
        own = other;
    }
    let body = change::damaged(own, &other.body, &mut random);
    Case::new(own, body, &mut random)
}

/// Whether an input keeps all promises; a panic breaks one.
fn tried(case: &Case, tally: &mut Tally) -> Result<(), String> {
    panic::catch_unwind(AssertUnwindSafe(|| case.check(tally).and_then(|()| reflect::check(case))))
        .unwrap_or_else(|_| Err(panic_message()))
}

/// A shorter input that fails too, by leaving out ever smaller parts.
fn shortened(mut case: Case, mut why: String) -> (Case, String) {
    let mut size = case.body.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < case.body.len() {
            let end = case.body.len().min(start + size);
            let body = [&case.body[..start], &case.body[end..]].concat();
            let shorter = Case { body, ..case.clone() };
            match tried(&shorter, &mut Tally::default()) {
                Err(still) => (case, why) = (shorter, still),
                Ok(()) => start = end,
            }
        }
        size /= 2;
    }
    (case, why)
}

fn save(options: &Options, index: u64, case: &Case, why: &str) -> Result<PathBuf, String> {
    let path = options.failures.join(format!("{}-{index}.body", options.seed));
    let words = format!("{why}\n{case:?}\n");
    fs::write(&path, &case.body)
        .and_then(|()| fs::write(path.with_extension("txt"), words))
        .map_err(|error| format!("cannot save an input: {error}"))?;
    Ok(path)
}
