//! Scenarios of the initial sync: its time, and the memory of the cache.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Figure, RunContext, SETTLE_DELAY, encoding_suffix, less, megabytes, number, short};
use crate::failure::Failure;
use crate::program::{Client, Program};
use crate::replay::Replay;
use crate::wire::Encoding;

/// Delay until a cache has trained a dictionary and compressed its objects.
const TRAINING_DELAY: Duration = Duration::from_secs(4);
/// Time limit for memory to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn sync(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    let response = context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
    let row_name = |what: &str| format!("{what}{}, {} pods", encoding_suffix(encoding), short(pods));
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let mut figures = vec![
        less(row_name("initial sync"), "s", number(&response, "seconds")?),
        less(row_name("initial sync, CPU time"), "s", number(&response, "cpu")?),
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ];
    if context.client != Client::Baseline {
        let report = relist(&replay, &mut program, pods)?;
        figures.push(less(row_name("memory, peak of a relist"), "MB", megabytes(&report, "peak")?));
        figures.push(less(row_name("memory, settled after a relist"), "MB", megabytes(&report, "rss")?));
    }
    Ok(figures)
}

/// Causes a relist after one pod in a hundred changed, and returns the memory report.
fn relist(replay: &Replay, program: &mut Program, pods: usize) -> Result<Value, Failure> {
    let changed = (pods / 100).max(1);
    let until = replay.version_after(changed);
    program.send(&json!({"do": "follow", "until": until}))?;
    replay.expire(changed);
    program.response()?;
    thread::sleep(SETTLE_DELAY);
    program.request(&json!({"do": "report"}))
}

pub(super) fn compressed(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf", "keep": "compressed"}))?;
    thread::sleep(TRAINING_DELAY);
    let report = program.request(&json!({"do": "report", "reset": true}))?;
    let row_name = |what: &str| format!("{what}, compressed, {} pods", short(pods));
    let reads = program.request(&json!({"do": "read", "seconds": 1, "through": "typed"}))?;
    let each = number(&reads, "seconds")? * 1e6 / number(&reads, "gets")?;
    let after = relist(&replay, &mut program, pods)?;
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
        less(row_name("memory, peak of a relist"), "MB", megabytes(&after, "peak")?),
        less(row_name("memory, settled after a relist"), "MB", megabytes(&after, "rss")?),
        less(row_name("typed"), "µs per get", each),
    ])
}

pub(super) fn stripped(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"strip": true}))?;
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report"}))?;
    let row_name = |what: &str| format!("{what} without managedFields, {} pods", short(pods));
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ])
}

pub(super) fn control_plane(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let kubeconfig =
        context.control_plane.ok_or_else(|| Failure::Failed("no control plane is given".to_owned()))?;
    let mut figures = Vec::new();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        if (context.client, encoding) == (Client::KubeRs, Encoding::Protobuf) {
            continue;
        }
        let mut program = Program::start(context.program, kubeconfig)?;
        let response = context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
        let row_name = |what: &str| format!("{what}{}, {} pods", encoding_suffix(encoding), short(pods));
        figures.extend([
            less(row_name("initial sync from kube-apiserver"), "s", number(&response, "seconds")?),
            less(row_name("initial sync from kube-apiserver, CPU time"), "s", number(&response, "cpu")?),
        ]);
    }
    Ok(figures)
}

pub(super) fn by(context: &RunContext<'_>, pods: usize, strategy: &str) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(pods)?;
    let response = context.sync(&mut program, pods, &json!({"strategy": strategy}))?;
    let row = format!("initial sync by {strategy}, {} pods", short(pods));
    Ok(vec![less(row, "s", number(&response, "seconds")?)])
}

pub(super) fn projected(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf", "project": true}))?;
    thread::sleep(SETTLE_DELAY);
    let report = program.request(&json!({"do": "report"}))?;
    let row_name = |what: &str| format!("{what}, protobuf, with a projection, {} pods", short(pods));
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ])
}

/// Measures memory when it no longer changes: compression goes on after the initial sync.
pub(super) fn huge(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let (_replay, mut program) = context.start(pods)?;
    context.sync(&mut program, pods, &json!({"encoding": "protobuf", "keep": "compressed"}))?;
    let mut before = f64::INFINITY;
    let settled = (0..SETTLE_TIMEOUT.as_secs() / TRAINING_DELAY.as_secs()).find_map(|_| {
        thread::sleep(TRAINING_DELAY);
        let report = program.request(&json!({"do": "report"})).ok()?;
        let rss = megabytes(&report, "rss").ok()?;
        let is_settled = (rss / before - 1.0).abs() < 0.001;
        before = rss;
        is_settled.then_some(report)
    });
    let report = settled.ok_or_else(|| Failure::Failed("memory did not settle".to_owned()))?;
    let row_name = |what: &str| format!("{what}, compressed, {} pods", short(pods));
    Ok(vec![
        less(row_name("memory, settled"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of the sync"), "MB", megabytes(&report, "peak")?),
    ])
}
