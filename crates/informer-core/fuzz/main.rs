//! The fuzzer of the wire readers: corrupts recorded server responses and reads them. `cargo xtask fuzz`
//! builds and runs it.
//!
//! Each input is derived only from the seed and its number, so the number is enough to reproduce it. The
//! properties that must hold for every input are in `check`. An input that violates one is minimized and
//! saved. The number of the current input is written to a file, because a stack overflow ends the program.

mod chance;
mod change;
mod check;
mod json;
mod protobuf;
mod reflect;
mod seeds;

use check::{Case, Outcomes};
use informer_core::random::Random;
use peak_alloc::PeakAlloc;
use seeds::{BodyKind, Seed};
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Measures the memory used for reading an input.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The location and message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// The stack size of threads in real programs, in which a stack overflow ends the program.
const STACK_BYTES: usize = 2 << 20;
/// Number of failures after which the run ends.
const MAX_FAILURES: usize = 10;

/// The arguments, all passed by `cargo xtask fuzz`.
struct Options {
    seconds: u64,
    seed: u64,
    /// Maximum number of inputs.
    inputs: Option<u64>,
    /// The number of the only input to read.
    input: Option<u64>,
    recordings: PathBuf,
    /// The folder in which failures are saved.
    failures: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> Option<Self> {
        let [seconds, seed, inputs, input, recordings, failures] = args else { return None };
        let optional = |text: &String| if text == "all" { Some(None) } else { text.parse().ok().map(Some) };
        Some(Self {
            seconds: seconds.parse().ok()?,
            seed: seed.parse().ok()?,
            inputs: optional(inputs)?,
            input: optional(input)?,
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
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(&options));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(0))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(_))) => ExitCode::FAILURE,
        Ok(Ok(Err(reason))) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
        _ => {
            eprintln!("error: the fuzzer failed: {}", panic_message());
            ExitCode::FAILURE
        }
    }
}

fn panic_message() -> String {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Reads inputs until the time is over; returns how many of them failed.
fn run(options: &Options) -> Result<usize, String> {
    let seeds = seeds::all(&options.recordings)?;
    fs::create_dir_all(&options.failures)
        .map_err(|error| format!("cannot create the folder for failures: {error}"))?;
    let current_path = options.failures.join("at");
    let mut current_file =
        File::create(&current_path).map_err(|error| format!("cannot record the current input: {error}"))?;
    let started = Instant::now();
    let (mut outcomes, mut failed, mut number, mut reported_seconds) = (Outcomes::default(), 0, 0, 0);
    loop {
        let elapsed = started.elapsed();
        let has_reached_limit =
            options.inputs.is_some_and(|inputs| number >= inputs) || failed >= MAX_FAILURES;
        let is_finished = elapsed >= Duration::from_secs(options.seconds) || has_reached_limit;
        if options.input.map_or(is_finished, |_| number > 0) {
            break;
        }
        if elapsed.as_secs() > reported_seconds {
            reported_seconds = elapsed.as_secs();
            eprintln!("{reported_seconds} s: {number} inputs, {failed} failed");
        }
        let index = options.input.unwrap_or(number);
        // An error is ignored: only a stack overflow would be harder to find.
        let _ = current_file.rewind().and_then(|()| write!(current_file, "{index:<20}"));
        let case = make_case(&seeds, options.seed, index);
        if options.input.is_some() {
            save(options, index, &case, "selected by --input")?;
        }
        if let Err(reason) = check_case(&case, &mut outcomes) {
            failed += 1;
            let (case, reason) = minimize(case, reason);
            let path = save(options, index, &case, &reason)?;
            eprintln!("input {index} of seed {}: {reason}\n  saved as {}", options.seed, path.display());
        }
        number += 1;
    }
    let _ = fs::remove_file(current_path);
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "the rate is only printed")]
    let rate = number as f64 / seconds;
    println!(
        "seed {}: {number} inputs from {} bodies in {seconds:.1} s ({rate:.0} per second), {failed} failed",
        options.seed,
        seeds.len()
    );
    print!("{outcomes}");
    Ok(failed)
}

/// Returns the input with this number.
fn make_case(seeds: &[Seed], seed: u64, index: u64) -> Case {
    let mut random = Random::new(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
    let pick = |random: &mut Random| &seeds[chance::below(random, seeds.len())];
    let (mut own, other) = (pick(&mut random), pick(&mut random));
    // Error responses are as frequent as other bodies and less likely to reveal a failure.
    if own.kind == BodyKind::Status && random.below(4) > 0 {
        own = other;
    }
    let body = change::corrupt(own, &other.body, &mut random);
    Case::new(own, body, &mut random)
}

/// Checks all properties of an input; a panic is a failure.
fn check_case(case: &Case, outcomes: &mut Outcomes) -> Result<(), String> {
    panic::catch_unwind(AssertUnwindSafe(|| case.check(outcomes).and_then(|()| reflect::check(case))))
        .unwrap_or_else(|_| Err(panic_message()))
}

/// Returns a shorter input that also fails, by removing ever smaller parts.
fn minimize(mut case: Case, mut reason: String) -> (Case, String) {
    let mut size = case.body.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < case.body.len() {
            let end = case.body.len().min(start + size);
            let body = [&case.body[..start], &case.body[end..]].concat();
            let shorter = Case { body, ..case.clone() };
            match check_case(&shorter, &mut Outcomes::default()) {
                Err(new_reason) => (case, reason) = (shorter, new_reason),
                Ok(()) => start = end,
            }
        }
        size /= 2;
    }
    (case, reason)
}

fn save(options: &Options, index: u64, case: &Case, reason: &str) -> Result<PathBuf, String> {
    let path = options.failures.join(format!("{}-{index}.body", options.seed));
    let description = format!("{reason}\n{case:?}\n");
    fs::write(&path, &case.body)
        .and_then(|()| fs::write(path.with_extension("txt"), description))
        .map_err(|error| format!("cannot save an input: {error}"))?;
    Ok(path)
}
