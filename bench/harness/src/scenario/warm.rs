//! Scenarios of saved caches: warm starts, and the cost of saving.
//!
//! Each start is a process of its own with a new server. The versions of the servers are those of the same
//! cluster, so a process continues where the one before has stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::changes::follow;
use super::{Figure, RunContext, SETTLE_DELAY, encoding_suffix, less, megabytes, number, short};
use crate::data::Size;
use crate::failure::Failure;
use crate::program::Program;
use crate::replay::Replay;
use crate::wire::Encoding;

/// Delay until a cache is saved completely after a cold start.
const FIRST_SAVE_DELAY: Duration = Duration::from_secs(5);

/// Measures a cold start, a warm start after one pod in a hundred has changed, and a warm start of which the
/// server no longer has the version.
pub(super) fn warm(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
) -> Result<Vec<Figure>, Failure> {
    let row_name = |what: &str| format!("{what}{}, {} pods", encoding_suffix(encoding), short(pods));
    let changed = (pods / 100).max(1);
    let state = StateFolder::new(context, "state")?;
    let fields = json!({"encoding": encoding.name(), "state": state.0});
    let cold = {
        let (_replay, mut program) = context.start(pods)?;
        context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?
    };
    let first_save = save(context, Size::Usual, pods, &state, &fields)?;
    let (response, report) = {
        let (replay, mut program) = context.start(pods)?;
        replay.change_last(changed);
        let response = context.sync(&mut program, pods, &fields)?;
        check_full_lists(&response, 0)?;
        let report = settled_report(&mut program)?;
        stop(&mut program)?;
        (response, report)
    };
    let expired = expire(context, pods, 2 * changed, changed, &fields)?;
    check_difference(context, encoding, pods, changed)?;
    let seconds = number(&expired, "seconds")?;
    Ok(vec![
        less(row_name("warm start, readable"), "s", number(&response, "readable")?),
        less(row_name("warm start"), "s", number(&response, "seconds")?),
        less(row_name("warm start, CPU time"), "s", number(&response, "cpu")?),
        less(row_name("warm start after 410"), "s", seconds),
        less(
            row_name("warm start after 410, of a cold start"),
            "%",
            100.0 * seconds / number(&cold, "seconds")?,
        ),
        less(row_name("memory, settled after a warm start"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of a warm start"), "MB", megabytes(&report, "peak")?),
        less(row_name("saved cache, file"), "% of the cached bytes", first_save.file_percent),
        less(row_name("first save"), "s", first_save.seconds),
    ])
}

/// Starts with a saved cache whose version the server no longer has, and in which `changed` pods are out of date,
/// if these pods have changed `total` times since the first list.
fn expire(
    context: &RunContext<'_>,
    pods: usize,
    total: usize,
    changed: usize,
    fields: &Value,
) -> Result<Value, Failure> {
    let (replay, mut program) = context.start(pods)?;
    for _ in 0..total / changed {
        replay.change_last(changed);
    }
    replay.forget_history();
    let response = context.sync(&mut program, pods, fields)?;
    check_full_lists(&response, 1)?;
    Ok(response)
}

/// Checks that a durable handler can distinguish the changed pods from the others after an expired version.
fn check_difference(
    context: &RunContext<'_>,
    encoding: Encoding,
    pods: usize,
    changed: usize,
) -> Result<(), Failure> {
    let state = StateFolder::new(context, "durable")?;
    let fields = json!({"encoding": encoding.name(), "state": state.0, "durable": true});
    save(context, Size::Usual, pods, &state, &fields)?;
    let response = expire(context, pods, changed, changed, &fields)?;
    let expected = json!({"unchanged": pods - changed, "changed": changed, "added": 0, "deleted": 0});
    if response["difference"] != expected {
        let received = &response["difference"];
        return Err(Failure::Failed(format!("a durable handler received {received} instead of {expected}")));
    }
    Ok(())
}

/// Measures a warm start with very many pods of 1 KB.
pub(super) fn small(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let state = StateFolder::new(context, "state")?;
    let fields = json!({"encoding": "protobuf", "index": "group", "state": state.0});
    let first_save = save(context, Size::Small, pods, &state, &fields)?;
    let (_replay, mut program) = context.start_with(Size::Small, pods)?;
    let response = context.sync(&mut program, pods, &fields)?;
    check_full_lists(&response, 0)?;
    let report = settled_report(&mut program)?;
    let row_name = |what: &str| format!("{what}, protobuf, {} pods of 1 KB", short(pods));
    Ok(vec![
        less(row_name("warm start, readable"), "s", number(&response, "readable")?),
        less(row_name("warm start"), "s", number(&response, "seconds")?),
        less(row_name("memory, settled after a warm start"), "MB", megabytes(&report, "rss")?),
        less(row_name("memory, peak of a warm start"), "MB", megabytes(&report, "peak")?),
        less(row_name("saved cache, file"), "% of the cached bytes", first_save.file_percent),
        less(row_name("first save"), "s", first_save.seconds),
        less(row_name("memory, peak of the first save"), "MB", first_save.peak),
    ])
}

/// Measures warm starts from a control plane, after one pod in a hundred has changed.
pub(super) fn control_plane(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let kubeconfig =
        context.control_plane.ok_or_else(|| Failure::Failed("no control plane is given".to_owned()))?;
    let mut figures = Vec::new();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let state = StateFolder::new(context, "state")?;
        let fields = json!({"encoding": encoding.name(), "state": state.0});
        // Another process without a saved cache writes the changes.
        let change = |revisions: &[&str]| -> Result<(), Failure> {
            let mut program = Program::start(context.program, kubeconfig)?;
            context.sync(&mut program, pods, &json!({"encoding": encoding.name()}))?;
            for revision in revisions {
                let revision = format!("{} {} {revision}", std::process::id(), encoding.name());
                program
                    .request(&json!({"do": "change", "pods": (pods / 100).max(1), "revision": revision}))?;
            }
            Ok(())
        };
        // kube-apiserver shortens its history of a kind to 100 changes if nothing has changed for a minute, and
        // rejects a version before the first change in it. These changes extend it.
        change(&["first", "second"])?;
        {
            let mut program = Program::start(context.program, kubeconfig)?;
            context.sync(&mut program, pods, &fields)?;
            stop(&mut program)?;
        }
        change(&["third"])?;
        let mut program = Program::start(context.program, kubeconfig)?;
        let response = context.sync(&mut program, pods, &fields)?;
        check_full_lists(&response, 0)?;
        let row_name = |what: &str| {
            format!("warm start from kube-apiserver{what}{}, {} pods", encoding_suffix(encoding), short(pods))
        };
        figures.extend([
            less(row_name(", readable"), "s", number(&response, "readable")?),
            less(row_name(""), "s", number(&response, "seconds")?),
            less(row_name(", CPU time"), "s", number(&response, "cpu")?),
        ]);
    }
    Ok(figures)
}

/// Measures what saving costs while pods change at a fixed rate: compares the CPU time with and without it, one
/// after the other.
pub(super) fn saving(
    context: &RunContext<'_>,
    encoding: Encoding,
    rate: u32,
    pods: usize,
    seconds: u32,
) -> Result<Vec<Figure>, Failure> {
    let state = StateFolder::new(context, "state")?;
    let run = |fields: &Value| -> Result<(f64, Value, Value), Failure> {
        let (replay, mut program) = context.start(pods)?;
        replay.scatter_changes();
        context.sync(&mut program, pods, fields)?;
        thread::sleep(FIRST_SAVE_DELAY);
        let before = program.request(&json!({"do": "report", "reset": true}))?;
        let response = follow(&replay, &mut program, (rate * seconds) as usize, Some(rate))?;
        let share = 100.0 * number(&response, "cpu")? / number(&response, "seconds")?;
        Ok((share, before, program.request(&json!({"do": "report"}))?))
    };
    let (without, _, _) = run(&json!({"encoding": encoding.name()}))?;
    let (with, before, after) = run(&json!({"encoding": encoding.name(), "state": state.0}))?;
    let row_name =
        |what: &str| format!("{what} at {rate} changes/s{}, {} pods", encoding_suffix(encoding), short(pods));
    let first = format!("{}, {} pods", encoding_suffix(encoding), short(pods));
    Ok(vec![
        less(row_name("saving, CPU time"), "% of a core", with - without),
        less(format!("memory, settled after the first save{first}"), "MB", megabytes(&before, "rss")?),
        less(format!("memory, peak of the first save{first}"), "MB", megabytes(&before, "peak")?),
        less(row_name("memory, peak of saving"), "MB", megabytes(&after, "peak")?),
    ])
}

/// The first save of a cache.
struct FirstSave {
    seconds: f64,
    /// The peak of the memory, in MB.
    peak: f64,
    /// The size of the file in percent of the cached bytes.
    file_percent: f64,
}

/// Syncs from the beginning and stops, which saves the cache.
fn save(
    context: &RunContext<'_>,
    size: Size,
    pods: usize,
    state: &StateFolder,
    fields: &Value,
) -> Result<FirstSave, Failure> {
    let (_replay, mut program): (Replay, Program) = context.start_with(size, pods)?;
    let response = context.sync(&mut program, pods, fields)?;
    program.request(&json!({"do": "report", "reset": true}))?;
    let seconds = number(&stop(&mut program)?, "seconds")?;
    let report = program.request(&json!({"do": "report"}))?;
    let file_percent = 100.0 * state.disk_bytes()? / number(&response, "cached")?;
    Ok(FirstSave { seconds, peak: megabytes(&report, "peak")?, file_percent })
}

fn stop(program: &mut Program) -> Result<Value, Failure> {
    program.request(&json!({"do": "stop"}))
}

fn settled_report(program: &mut Program) -> Result<Value, Failure> {
    thread::sleep(SETTLE_DELAY);
    program.request(&json!({"do": "report"}))
}

/// Checks how often the client has requested all pods.
fn check_full_lists(response: &Value, expected: u64) -> Result<(), Failure> {
    match response["full_lists"].as_u64() {
        Some(sent) if sent == expected => Ok(()),
        _ => {
            let (sent, expired) = (&response["full_lists"], &response["expired"]);
            Err(Failure::Failed(format!(
                "a start with a saved cache sent {sent} full lists, not {expected}; 410 was received {expired} times"
            )))
        }
    }
}

/// A folder for saved caches, empty at first and removed on drop.
struct StateFolder(PathBuf);

impl StateFolder {
    fn new(context: &RunContext<'_>, name: &str) -> Result<Self, Failure> {
        let path = context.folder.join(name);
        fs::create_dir_all(&path)
            .map_err(|error| Failure::Failed(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    /// Returns the space that the files occupy.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^52")]
    fn disk_bytes(&self) -> Result<f64, Failure> {
        let failed = |error| Failure::Failed(format!("cannot read {}: {error}", self.0.display()));
        let mut sum = 0;
        for file in fs::read_dir(&self.0).map_err(failed)? {
            sum += disk_bytes(&file.map_err(failed)?.path()).map_err(failed)?;
        }
        Ok(sum as f64)
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        // The folder of the whole run is removed at its end.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the space that a file occupies; parts that were never written occupy none.
fn disk_bytes(file: &Path) -> std::io::Result<u64> {
    let metadata = file.metadata()?;
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512);
    #[cfg(not(unix))]
    Ok(metadata.len())
}
