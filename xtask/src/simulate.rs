//! `cargo xtask simulate`: the simulations of this project with many seeds, in a release build.
//!
//! CI runs the same tests with few seeds.

use crate::failure::Failure;
use crate::repo::Repo;

/// The tests with simulations.
const TESTS: &str = "test --release --locked -p informer-examples -p informer-testkit --test integration --";

/// Seeds per simulation.
const SEEDS: u64 = 10_000;

/// The command line options.
#[derive(Debug, PartialEq, Eq)]
struct Options<'a> {
    seeds: u64,
    /// Parts of names of tests.
    filters: Vec<&'a str>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args)?;
    let filters = options.filters.join(" ");
    let list = format!("{TESTS} --list {filters}");
    let tests = repo.cargo_output(&list.split_whitespace().collect::<Vec<_>>())?;
    if !tests.lines().any(|line| line.ends_with(": test")) {
        return Err(Failure::Usage(format!("no test has `{filters}` in its name")));
    }
    // One test at a time, because each uses all CPUs.
    let command = format!("{TESTS} --test-threads=1 --nocapture {filters}");
    repo.run_cargo(&command, &[("INFORMER_SIM_TEST_SEEDS", &options.seeds.to_string())])
}

impl<'a> Options<'a> {
    fn parse(args: &'a [String]) -> Result<Self, Failure> {
        let mut options = Options { seeds: SEEDS, filters: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seeds" => {
                    let number =
                        args.next().and_then(|number| number.parse().ok()).filter(|seeds| *seeds > 0);
                    options.seeds = number.ok_or_else(|| {
                        Failure::Usage("`--seeds` needs a number greater than 0".to_owned())
                    })?;
                }
                option if option.starts_with('-') => {
                    return Err(Failure::Usage(format!("unknown option `{option}`")));
                }
                filter => options.filters.push(filter),
            }
        }
        if options.filters.is_empty() {
            options.filters = vec!["simulation::", "bugs::"];
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let args = |words: &[&str]| -> Vec<String> { words.iter().map(ToString::to_string).collect() };
        let (none, some) = (args(&[]), args(&["operator", "--seeds", "5"]));
        assert_eq!(
            Options::parse(&none).ok(),
            Some(Options { seeds: 10_000, filters: vec!["simulation::", "bugs::"] })
        );
        assert_eq!(Options::parse(&some).ok(), Some(Options { seeds: 5, filters: vec!["operator"] }));
        for wrong in [args(&["--seeds", "0"]), args(&["--seeds"]), args(&["--unknown"])] {
            assert!(matches!(Options::parse(&wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
