//! Scenarios in which pods change: throughput, latency, and the cost in sets of different sizes.

use serde_json::{Value, json};

use super::{Figure, RunContext, encoding_suffix, less, more, number, short};
use crate::data::Size;
use crate::failure::Failure;
use crate::program::{Client, Program};
use crate::replay::Replay;
use crate::wire::Encoding;

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn watch(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
    frames: usize,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let response = follow(&replay, &mut program, frames, None)?;
    let delivered = context.delivered_per_change(&mut program, pods, frames, 1)?;
    let name = format_name(encoding);
    let each = number(&response, "cpu")? * 1e6 / frames as f64;
    Ok(vec![
        more(format!("watch throughput, {name}"), "events/s", frames as f64 / number(&response, "seconds")?)
            .with_delivered(delivered),
        less(format!("watch, {name}, CPU time"), "µs per event", each).with_delivered(delivered),
    ])
}

/// Measures changes and then look-ups, which run without concurrent writes and find one in five hundred
/// objects each.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn growth(context: &RunContext<'_>, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf"}))?;
    let changes = follow(&replay, &mut program, frames, None)?;
    let lookups = program.request(&json!({"do": "index", "seconds": 1}))?;
    let each = number(&changes, "cpu")? * 1e6 / frames as f64;
    let found = number(&lookups, "seconds")? * 1e9 / number(&lookups, "found")?;
    let row_name = |what: &str| format!("{what}, {} pods", short(pods));
    Ok(vec![
        less(row_name("change, protobuf, CPU time"), "µs", each),
        less(row_name("look-up by node, per object found"), "ns", found),
    ])
}

pub(super) fn latency(
    context: &RunContext<'_>,
    encoding: Encoding,
    rate: u32,
    pods: usize,
    seconds: u32,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let frames = (rate * seconds) as usize;
    let response = follow(&replay, &mut program, frames, Some(rate))?;
    let delivered = context.delivered_per_change(&mut program, pods, frames, 1)?;
    check_timed(&response["latency"], frames, delivered)?;
    let suffix = encoding_suffix(encoding);
    let figures = [("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")].map(|(name, field)| {
        let row = format!("latency at {rate} events/s{suffix}, {name}");
        Ok(less(row, "ms", number(&response["latency"], field)? / 1000.0).with_delivered(delivered))
    });
    figures.into_iter().collect()
}

/// Checks that nearly all delivered changes have a latency. A program may have received the first changes
/// before it started to measure.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn check_timed(latency: &Value, frames: usize, delivered: Option<f64>) -> Result<(), Failure> {
    let (timed, delivered) = (number(latency, "n")?, delivered.unwrap_or(1.0) * frames as f64);
    if timed < 0.95 * delivered {
        return Err(Failure::Failed(format!("only {timed} of {delivered} delivered changes have a latency")));
    }
    Ok(())
}

/// Changes pods, at this rate per second or at full speed, until the program has delivered all changes.
pub(super) fn follow(
    replay: &Replay,
    program: &mut Program,
    frames: usize,
    rate: Option<u32>,
) -> Result<Value, Failure> {
    let until = replay.version_after(frames);
    program.send(&json!({"do": "follow", "until": until, "latency": rate.is_some()}))?;
    replay.write(frames, rate);
    program.response()
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn fan_out(
    context: &RunContext<'_>,
    handlers: usize,
    pods: usize,
    frames: usize,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"handlers": handlers}))?;
    let response = follow(&replay, &mut program, frames, None)?;
    let plural = if handlers == 1 { "" } else { "s" };
    let row = format!("watch throughput, {handlers} handler{plural}");
    let delivered = context.delivered_per_change(&mut program, pods, frames, handlers)?;
    Ok(vec![more(row, "events/s", frames as f64 / number(&response, "seconds")?).with_delivered(delivered)])
}

/// Compares the throughput with and without a projection, one after the other.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn projected(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
    frames: usize,
) -> Result<Vec<Figure>, Failure> {
    let name = format_name(encoding);
    let run = |project: bool| -> Result<[Figure; 2], Failure> {
        let (replay, mut program) = context.start(pods)?;
        context.sync(&mut program, pods, &json!({"encoding": encoding.name(), "project": project}))?;
        let response = follow(&replay, &mut program, frames, None)?;
        let delivered = context.delivered_per_change(&mut program, pods, frames, 1)?;
        let rate = frames as f64 / number(&response, "seconds")?;
        let each = number(&response, "cpu")? * 1e6 / frames as f64;
        Ok([
            more(format!("watch throughput, {name}, with a projection"), "events/s", rate),
            less(format!("watch, {name}, CPU time, with a projection"), "µs per event", each),
        ]
        .map(|figure| figure.with_delivered(delivered)))
    };
    let ([without, _], [with, cpu]) = (run(false)?, run(true)?);
    let kept = 100.0 * with.value / without.value;
    Ok(vec![with, cpu, more(format!("watch throughput kept with a projection, {name}"), "%", kept)])
}

/// Measures changes and then look-ups of groups, which run without concurrent writes.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn small(context: &RunContext<'_>, pods: usize, frames: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start_with(Size::Small, pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf", "index": "group"}))?;
    let changes = follow(&replay, &mut program, frames, None)?;
    let each = number(&changes, "cpu")? * 1e6 / frames as f64;
    let set = format!("{} pods of 1 KB", short(pods));
    let mut figures = vec![less(format!("change, protobuf, CPU time, {set}"), "µs", each)];
    // Only informer has two ways; the figure of a peer is for both rows.
    let ways: &[(&str, &[&str])] = if context.client == Client::Informer {
        &[("lister", &["look-up through the lister"]), ("snapshot", &["look-up through a snapshot"])]
    } else {
        &[("lister", &["look-up through the lister", "look-up through a snapshot"])]
    };
    for results in [2, 20, 100] {
        for (through, rows) in ways {
            let command = json!({"do": "index", "seconds": 1, "results": results, "through": through});
            let response = program.request(&command)?;
            let (lookups, found) = (number(&response, "lookups")?, number(&response, "found")?);
            if (found - lookups * f64::from(results)).abs() >= 1.0 {
                return Err(Failure::Failed(format!(
                    "{lookups} look-ups found {found} pods, {results} each"
                )));
            }
            let each = number(&response, "seconds")? * 1e9 / lookups;
            figures
                .extend(rows.iter().map(|row| less(format!("{row}, {results} results, {set}"), "ns", each)));
        }
    }
    Ok(figures)
}

fn format_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "JSON",
        Encoding::Protobuf => "protobuf",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_latencies_are_an_error() {
        assert!(check_timed(&json!({"n": 955}), 1000, Some(1.0)).is_ok());
        assert!(check_timed(&json!({"n": 480}), 1000, Some(0.5)).is_ok());
        let Err(failure) = check_timed(&json!({"n": 495}), 1000, Some(1.0)) else {
            panic!("half of the latencies are missing")
        };
        assert_eq!(failure.message(), "only 495 of 1000 delivered changes have a latency");
    }
}
