//! A failure as a readable report.

mod html;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::check::Check;
use crate::fault::Fault;
use crate::run::{Plan, RunResult};
use crate::trace::{TraceEntry, TraceKind};

/// The most lines of a timeline in a report.
const MAX_LINES: usize = 300;

/// A check that failed, with the smallest schedule of faults that was found, and the timeline of that run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SimulationFailure {
    /// The name of the check.
    pub check: String,
    /// The problem.
    pub message: String,
    /// The seed of the run.
    pub seed: u64,
    /// The faults that are needed to make the check fail.
    pub faults: Vec<Fault>,
    /// The number of faults that the seed has chosen.
    pub chosen_faults: usize,
    /// The steps of the scenario.
    pub steps: Vec<ScenarioStep>,
    /// Everything that happened, in order.
    pub timeline: Vec<TraceEntry>,
    /// Whether the failure happened again when the seed was run again.
    pub is_repeatable: bool,
    replay: String,
}

/// A step of a scenario: one call of a method of [`World`](crate::World).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScenarioStep {
    /// A description, for example `create Website shop/blog`.
    pub text: String,
    /// Whether it is needed to make the check fail. Other steps were left out of the timeline.
    pub is_needed: bool,
}

impl SimulationFailure {
    pub(crate) fn new(plan: &Plan, result: RunResult, chosen_faults: usize) -> Self {
        let (check, message) = match result.failure {
            Some(failure) => (failure.check, failure.message),
            None => (String::new(), String::new()),
        };
        let steps = result.steps.into_iter().enumerate();
        let step = |(number, text)| ScenarioStep { text, is_needed: !plan.skipped.contains(&number) };
        SimulationFailure {
            check,
            message,
            seed: plan.seed,
            faults: plan.faults.clone(),
            chosen_faults,
            steps: steps.map(step).collect(),
            timeline: result.trace,
            is_repeatable: true,
            replay: replay_command(plan.seed),
        }
    }

    /// Returns the command that runs the seed again.
    pub fn replay_command(&self) -> &str {
        &self.replay
    }

    /// Returns the line above the faults.
    fn faults_title(&self) -> String {
        match (self.faults.len(), self.chosen_faults) {
            (0, 0) => "There were no faults.".to_owned(),
            (0, _) => {
                "No fault is needed: the result depends on the timing of the scenario, whose pauses differ \
                       between seeds."
                    .to_owned()
            }
            (needed, chosen) => format!("Faults ({needed} of {chosen} are needed):"),
        }
    }

    /// Writes the timeline as an HTML page into a folder, with one column for each actor. Returns its path.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    pub fn write_html(&self, folder: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let name: String = test_name().unwrap_or_else(|| "simulation".to_owned());
        let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let path = folder.join(format!("{name}-{}.html", self.seed));
        std::fs::write(&path, html::page(self))?;
        Ok(path)
    }
}

impl std::error::Error for SimulationFailure {}

impl fmt::Display for SimulationFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.message.is_empty() { "" } else { ": " };
        writeln!(
            out,
            "the simulation failed with seed {}: {}{separator}{}",
            self.seed, self.check, self.message
        )?;
        if let Some(check) = Check::ALL.iter().find(|check| check.name() == self.check) {
            writeln!(out, "[Check::{check:?}]")?;
        }
        if !self.is_repeatable {
            writeln!(
                out,
                "The failure did not happen again: the program is not deterministic (`check_determinism`)."
            )?;
        }
        writeln!(out, "\n{}", self.faults_title())?;
        for fault in &self.faults {
            writeln!(out, "  {fault} [FaultKind::{:?}]", fault.kind)?;
        }
        if !self.steps.is_empty() {
            writeln!(out, "\nSteps of the scenario:")?;
        }
        for ScenarioStep { text, is_needed } in &self.steps {
            writeln!(out, "  {text}{}", if *is_needed { "" } else { " (not needed, left out)" })?;
        }
        writeln!(out, "\nTimeline:")?;
        let lines: Vec<&TraceEntry> = self.timeline.iter().filter(|entry| is_shown(entry)).collect();
        let omitted = lines.len().saturating_sub(MAX_LINES);
        let kept = if omitted == 0 { lines.len() } else { MAX_LINES / 2 };
        for entry in lines.iter().take(kept) {
            writeln!(out, "{entry}")?;
        }
        if omitted > 0 {
            writeln!(out, "            … {omitted} lines are left out …")?;
            for entry in lines.iter().skip(lines.len() - MAX_LINES / 2) {
                writeln!(out, "{entry}")?;
            }
        }
        write!(out, "\nReplay: {}", self.replay)
    }
}

/// Whether a line is worth reading: bookmarks are not.
fn is_shown(entry: &TraceEntry) -> bool {
    let is_bookmark =
        |text: &str| text.split_once(": ").is_some_and(|(_, rest)| rest.starts_with("BOOKMARK"));
    entry.kind != TraceKind::Watch || !is_bookmark(&entry.text) || entry.text.contains(", ")
}

/// Returns the name of the test that runs on this thread.
fn test_name() -> Option<String> {
    std::thread::current().name().filter(|name| *name != "main").map(str::to_owned)
}

/// Returns the command that runs a seed again.
fn replay_command(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
    let test = test_name().map(|name| format!(" {name}")).unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    format!("INFORMER_SIM_SEED={seed} cargo test{profile}{package}{test} -- --nocapture")
}
