//! `cargo xtask fuzz`: damaged answers of servers for the readers of the core, from a seed, for a while.
//!
//! The program itself is `crates/informer-core/fuzz`, which knows what an input is and what has to hold. It is built as tests are: optimised, and
//! with the checks that a release leaves out. Here is only how it is started, and what is said when it does not come back.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::repo::Repo;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// A minute, unless inputs are counted.
    seconds: Option<u64>,
    /// So many inputs at most.
    inputs: Option<u64>,
    /// Another one each time, unless it is given.
    seed: Option<u64>,
    /// One input of the seed alone.
    input: Option<u64>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args)?;
    let seed = options.seed.unwrap_or_else(some_seed);
    // For the whole workspace, so that it is what `cargo test --workspace` has built.
    repo.cargo_output(&["build", "--quiet", "--locked", "--workspace", "--example", "fuzz"])?;
    let own = env::current_exe().map_err(|error| Failure::Failed(format!("where am I? {error}")))?;
    let program = own.with_file_name("examples").join(format!("fuzz{}", env::consts::EXE_SUFFIX));
    let failures = own.with_file_name("fuzz");
    let status = Command::new(program)
        .args([options.seconds(), seed].map(|number| number.to_string()))
        .args(
            [options.inputs, options.input]
                .map(|number| number.map_or("all".to_owned(), |it| it.to_string())),
        )
        .args([&repo.path("testdata/recordings"), &failures])
        .status()
        .map_err(|error| Failure::Failed(format!("cannot run the fuzzer: {error}")))?;
    let saved = failures.display();
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(match left_at(&failures) {
        Some(input) => format!(
            "input {input} ended the program, by its stack perhaps: `cargo xtask fuzz --seed {seed} --input {input}` \
             reads it once more, and saves it first in {saved}"
        ),
        None => format!("seed {seed} found something; what was saved is in {saved}"),
    }))
}

/// The input at which the program did not come back. It removes the note when it ends by itself.
fn left_at(failures: &Path) -> Option<u64> {
    fs::read_to_string(failures.join("at")).ok()?.trim().parse().ok()
}

fn some_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Options {
    /// What is counted is not cut short: the same inputs everywhere.
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.inputs.is_some() { u64::MAX } else { 60 })
    }

    fn parse(args: &[String]) -> Result<Self, Failure> {
        let mut options = Self { seconds: None, inputs: None, seed: None, input: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || {
                let wrong = || Failure::Usage(format!("`{arg}` needs a number"));
                args.next().and_then(|value| value.parse().ok()).ok_or_else(wrong)
            };
            match arg.as_str() {
                "--seconds" => options.seconds = Some(number()?),
                "--inputs" => options.inputs = Some(number()?),
                "--seed" => options.seed = Some(number()?),
                "--input" => options.input = Some(number()?),
                other => return Err(Failure::Usage(format!("`fuzz` does not take `{other}`"))),
            }
        }
        if options.input.is_some() && options.seed.is_none() {
            return Err(Failure::Usage("`--input` is a number within a `--seed`".to_owned()));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Options::parse(&args).map_err(Failure::why)
    }

    #[test]
    fn an_input_belongs_to_a_seed() {
        let expected = Options { seconds: None, inputs: None, seed: Some(3), input: Some(7) };
        assert_eq!(parse(&["--seed", "3", "--input", "7"]).unwrap(), expected);
        assert_eq!(parse(&["--input", "7"]).unwrap_err(), "`--input` is a number within a `--seed`");
        assert_eq!(parse(&["--seconds", "x"]).unwrap_err(), "`--seconds` needs a number");
        assert_eq!(parse(&["--curse"]).unwrap_err(), "`fuzz` does not take `--curse`");
    }

    /// A stack that is used up ends a program at once; only the note says where.
    #[test]
    fn a_note_that_is_left_says_which_input_it_was() {
        let folder = env::temp_dir().join(format!("informer-xtask-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(left_at(&folder), None);
        fs::write(folder.join("at"), "17                  ").unwrap();
        assert_eq!(left_at(&folder), Some(17));
        fs::remove_dir_all(folder).unwrap();
    }
}
