//! `cargo xtask crash`: crashes of processes with saved caches and damaged files, many more than in CI, in a release build.

use crate::failure::Failure;
use crate::repo::Repo;

/// Runs of the test with a simulated disk, with 20 ends of a process each, two thirds of them crashes; CI has 150.
const SEEDS: u64 = 2_000;
/// Processes that are killed; CI has 100.
const KILLS: u64 = 2_000;

/// Bits of a file that are flipped; CI has 400.
const FLIPPED_BITS: &str = "2000";

const SIMULATED: &str = "test --release --locked -p informer --features persistence,compression --test integration -- --nocapture persistence::faults persistence::damage";
const KILLED: &str =
    "test --release --locked -p informer-cli --test state -- --nocapture c2_runs_that_are_killed";

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let (seeds, kills) = parse(args)?;
    repo.run_cargo(
        SIMULATED,
        &[("INFORMER_CRASH_SEEDS", &seeds.to_string()), ("INFORMER_FLIPPED_BITS", FLIPPED_BITS)],
    )?;
    repo.run_cargo(KILLED, &[("INFORMER_KILLS", &kills.to_string())])
}

fn parse(args: &[String]) -> Result<(u64, u64), Failure> {
    let (mut seeds, mut kills) = (SEEDS, KILLS);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let target = match arg.as_str() {
            "--seeds" => &mut seeds,
            "--kills" => &mut kills,
            option => return Err(Failure::Usage(format!("unknown option `{option}`"))),
        };
        let number = args.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        *target = number.ok_or_else(|| Failure::Usage(format!("`{arg}` needs a number greater than 0")))?;
    }
    Ok((seeds, kills))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let args = |words: &[&str]| -> Vec<String> { words.iter().map(ToString::to_string).collect() };
        assert_eq!(parse(&[]).ok(), Some((SEEDS, KILLS)));
        assert_eq!(parse(&args(&["--kills", "5", "--seeds", "7"])).ok(), Some((7, 5)));
        for wrong in [args(&["--seeds", "0"]), args(&["--kills"]), args(&["--unknown"])] {
            assert!(matches!(parse(&wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
