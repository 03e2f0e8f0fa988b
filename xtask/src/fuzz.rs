//! `cargo xtask fuzz`: runs the fuzzer, which feeds malformed responses to the readers of the core.
//!
//! The fuzzer is `crates/informer-core/fuzz`; it defines the inputs and the rules that must hold. It is built
//! like tests: optimized, and with debug assertions. This file only starts it and reports an input that
//! crashed it.

use std::env;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::repo::Repo;

/// The command line options.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Time limit. Defaults to one minute, or to no limit if `inputs` is given.
    seconds: Option<u64>,
    /// Maximum number of inputs.
    inputs: Option<u64>,
    /// Seed of the inputs. Defaults to the current time.
    seed: Option<u64>,
    /// Number of the only input of the seed to run.
    input: Option<u64>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args)?;
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let own = env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
    let failures = own.with_file_name("fuzz");
    // With `--workspace`, so that the libraries of `cargo test --workspace` are reused.
    let status = repo
        .cargo(&["test", "--quiet", "--locked", "--workspace", "--bench", "fuzz", "--"])
        .args([options.seconds(), seed].map(|number| number.to_string()))
        .args(
            [options.inputs, options.input]
                .map(|number| number.map_or("all".to_owned(), |number| number.to_string())),
        )
        .args([&repo.path("testdata/recordings"), &failures])
        .status()
        .map_err(|error| Failure::Failed(format!("cannot run the fuzzer: {error}")))?;
    let saved = failures.display();
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(match crashing_input(&failures) {
        Some(input) => format!(
            "input {input} crashed the fuzzer (stack overflow?): `cargo xtask fuzz --seed {seed} --input {input}` \
             saves it in {saved} and runs it again"
        ),
        None => format!("seed {seed} found failing inputs; they are saved in {saved}"),
    }))
}

/// Returns the input that crashed the fuzzer, from the file `at`, which the fuzzer removes when it exits
/// normally.
fn crashing_input(failures: &Path) -> Option<u64> {
    fs::read_to_string(failures.join("at")).ok()?.trim().parse().ok()
}

fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Options {
    /// Returns the time limit. There is none if the number of inputs is given, so that every machine runs all
    /// of them.
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.inputs.is_some() { u64::MAX } else { 60 })
    }

    fn parse(args: &[String]) -> Result<Self, Failure> {
        let mut options = Self { seconds: None, inputs: None, seed: None, input: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || {
                let invalid = || Failure::Usage(format!("`{arg}` needs a number"));
                args.next().and_then(|value| value.parse().ok()).ok_or_else(invalid)
            };
            match arg.as_str() {
                "--seconds" => options.seconds = Some(number()?),
                "--inputs" => options.inputs = Some(number()?),
                "--seed" => options.seed = Some(number()?),
                "--input" => options.input = Some(number()?),
                other => return Err(Failure::Usage(format!("`fuzz` does not accept `{other}`"))),
            }
        }
        if options.input.is_some() && options.seed.is_none() {
            return Err(Failure::Usage("`--input` needs `--seed`".to_owned()));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Options::parse(&args).map_err(Failure::message)
    }

    #[test]
    fn input_needs_seed() {
        let expected = Options { seconds: None, inputs: None, seed: Some(3), input: Some(7) };
        assert_eq!(parse(&["--seed", "3", "--input", "7"]).unwrap(), expected);
        assert_eq!(parse(&["--input", "7"]).unwrap_err(), "`--input` needs `--seed`");
        assert_eq!(parse(&["--seconds", "x"]).unwrap_err(), "`--seconds` needs a number");
        assert_eq!(parse(&["--unknown"]).unwrap_err(), "`fuzz` does not accept `--unknown`");
    }

    /// A stack overflow aborts the fuzzer, so only the file names the input.
    #[test]
    fn crashing_input_is_read_from_file() {
        let folder = env::temp_dir().join(format!("informer-xtask-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(crashing_input(&folder), None);
        fs::write(folder.join("at"), "17                  ").unwrap();
        assert_eq!(crashing_input(&folder), Some(17));
        fs::remove_dir_all(folder).unwrap();
    }
}
