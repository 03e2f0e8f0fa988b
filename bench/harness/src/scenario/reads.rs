//! Scenarios of reads beside changes, at full speed and at fixed rates.

use std::sync::atomic::Ordering;
use std::thread;

use serde_json::{Value, json};

use super::{Figure, RunContext, SETTLE_DELAY, more, number};
use crate::failure::Failure;
use crate::program::{Client, Program};

/// A command of the programs, how it reads, and the rows of its figure.
type Reading = (&'static str, &'static str, &'static [&'static str]);

const SNAPSHOT_GET: &str = "get through a snapshot";
const LISTER_GET: &str = "get through the lister";
const PROJECTED_GET: &str = "typed get through a projection";
const DECODED_GET: &str = "typed get, decoded retention";
const PROJECTED_WALK: &str = "walk of 6 fields through a projection";
const DECODED_WALK: &str = "walk of 6 fields, decoded retention";

/// What informer does with a projection.
const PROJECTED: [Reading; 4] = [
    ("read", "snapshot", &[SNAPSHOT_GET]),
    ("read", "lister", &[LISTER_GET]),
    ("read", "projection", &[PROJECTED_GET]),
    ("walk", "projection", &[PROJECTED_WALK]),
];
/// What informer does with decoded retention.
const DECODED: [Reading; 2] = [("read", "typed", &[DECODED_GET]), ("walk", "typed", &[DECODED_WALK])];
/// What a peer does, whose cache always contains decoded objects.
const PEER: [Reading; 3] = [
    ("read", "lister", &[SNAPSHOT_GET, LISTER_GET]),
    ("read", "typed", &[PROJECTED_GET, DECODED_GET]),
    ("walk", "typed", &[PROJECTED_WALK, DECODED_WALK]),
];

pub(super) fn during_writes(
    context: &RunContext<'_>,
    pods: usize,
    seconds: f64,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({}))?;
    let stop = replay.write_until(None);
    let mut measure = |command: Value, count: &str| {
        let response = program.request(&command)?;
        Ok(number(&response, count)? / number(&response, "seconds")?)
    };
    let gets = measure(json!({"do": "read", "seconds": seconds, "through": "lister"}), "gets")?;
    let typed = measure(json!({"do": "read", "seconds": seconds, "through": "typed"}), "gets")?;
    let lookups = measure(json!({"do": "index", "seconds": seconds}), "lookups")?;
    stop.store(true, Ordering::Relaxed);
    let mut figures = vec![
        more("get during writes".to_owned(), "thousand/s", gets / 1000.0),
        more("get during writes, typed".to_owned(), "thousand/s", typed / 1000.0),
        more("look-up by node during writes".to_owned(), "thousand/s", lookups / 1000.0),
    ];
    if context.client == Client::Informer {
        figures.push(decoded(context, pods, seconds)?);
    }
    Ok(figures)
}

/// Measures typed reads from a cache that stores decoded objects, as the caches of the peers always do.
fn decoded(context: &RunContext<'_>, pods: usize, seconds: f64) -> Result<Figure, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"keep": "decoded"}))?;
    let stop = replay.write_until(None);
    let response = program.request(&json!({"do": "read", "seconds": seconds, "through": "typed"}))?;
    stop.store(true, Ordering::Relaxed);
    let gets = number(&response, "gets")? / number(&response, "seconds")?;
    Ok(more("get during writes, typed, decoded".to_owned(), "thousand/s", gets / 1000.0))
}

/// Measures reads beside changes at a fixed rate. informer and client-go use protobuf: with JSON, client-go
/// does not reach the rate.
pub(super) fn at_rate(
    context: &RunContext<'_>,
    rate: u32,
    pods: usize,
    seconds: f64,
) -> Result<Vec<Figure>, Failure> {
    let runs: &[(Value, &[Reading])] = &match context.client {
        Client::Informer => vec![
            (json!({"encoding": "protobuf", "project": true}), &PROJECTED[..]),
            (json!({"encoding": "protobuf", "keep": "decoded"}), &DECODED[..]),
        ],
        Client::Go => vec![(json!({"encoding": "protobuf"}), &PEER[..])],
        Client::KubeRs | Client::Baseline => vec![(json!({}), &PEER[..])],
    };
    let mut figures = Vec::new();
    for (sync, readings) in runs {
        let (replay, mut program) = context.start(pods)?;
        context.sync(&mut program, pods, sync)?;
        let stop = (rate > 0).then(|| replay.write_until(Some(rate)));
        thread::sleep(SETTLE_DELAY);
        for reading in *readings {
            figures.extend(measure(&mut program, reading, rate, seconds)?);
        }
        if let Some(stop) = stop {
            stop.store(true, Ordering::Relaxed);
        }
    }
    Ok(figures)
}

fn measure(
    program: &mut Program,
    (command, through, rows): &Reading,
    rate: u32,
    seconds: f64,
) -> Result<Vec<Figure>, Failure> {
    let response = program.request(&json!({"do": command, "seconds": seconds, "through": through}))?;
    let (unit, count) = match *command {
        "walk" => ("thousand pods/s", number(&response, "objects")?),
        _ => ("thousand/s", number(&response, "gets")?),
    };
    let seconds = number(&response, "seconds")?;
    let applied = (rate > 0).then_some(number(&response, "changes")? / seconds / f64::from(rate));
    let suffix = if rate == 0 { "no changes".to_owned() } else { format!("{rate} changes/s") };
    let figure = |row| more(format!("{row}, {suffix}"), unit, count / seconds / 1000.0).with_applied(applied);
    Ok(rows.iter().map(figure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_all_rows_of_informer() {
        let rows = |readings: &[Reading]| -> Vec<&str> {
            readings.iter().flat_map(|(_, _, rows)| rows.iter().copied()).collect()
        };
        let (mut informer, mut peer) = ([rows(&PROJECTED), rows(&DECODED)].concat(), rows(&PEER));
        informer.sort_unstable();
        peer.sort_unstable();
        assert_eq!(informer, peer);
    }
}
