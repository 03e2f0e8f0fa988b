//! The table of measurements and targets.
//!
//! All values are relative to the memory before the first request. A peak is compared with the settled memory
//! before its phase; that of the initial sync with the settled memory after it.

use crate::client::Phase;
use crate::process_stats::{Level, Reading};
use crate::{Mode, Plan};
use std::fmt;

/// Target of the settled memory, bytes per pod.
const SETTLED: f64 = 8000.0;
/// Targets of peaks, as multiples of the settled memory.
const SYNC_PEAK: f64 = 1.15;
const FEW_PEAK: f64 = 1.15;
const ALL_PEAK: f64 = 2.1;

/// What a row's value is compared with.
enum Scale {
    /// Bytes per pod.
    Each(usize),
    /// Multiple of this many bytes.
    Times(u64),
}

struct Row {
    mode: Mode,
    what: &'static str,
    unit: &'static str,
    bytes: u64,
    scale: Scale,
    /// The target; `None` for information.
    target: Option<f64>,
    seconds: Option<f64>,
}

pub(crate) struct Report {
    objects: usize,
    handlers: usize,
    /// Size of a pod as a list item, and of its `managedFields`.
    sizes: (usize, usize),
    rows: Vec<Row>,
}

impl Report {
    /// Creates an empty table for runs with pods like this one.
    pub(crate) fn new(plan: &Plan, sample: &str) -> Self {
        let managed = sample.find(",\"managedFields\":").zip(sample.find("},\"spec\":"));
        let sizes = (sample.len(), managed.map_or(0, |(start, end)| end - start));
        Self { objects: plan.objects, handlers: plan.handlers, sizes, rows: Vec::new() }
    }

    /// Adds the readings of one run.
    pub(crate) fn add(&mut self, mode: Mode, readings: &[Reading]) {
        let readings: Vec<&Reading> = readings.iter().collect();
        let Ok(readings) = <[&Reading; Phase::ALL.len()]>::try_from(readings) else { return };
        self.add_measure(mode, "live bytes", readings, |reading| Some(reading.live));
        self.add_measure(mode, "RSS", readings, |reading| reading.rss);
    }

    fn add_measure(
        &mut self,
        mode: Mode,
        unit: &'static str,
        readings: [&Reading; Phase::ALL.len()],
        level: impl Fn(&Reading) -> Option<Level>,
    ) {
        let [Some(before), Some(sync), Some(few), Some(all), Some(again)] = readings.map(level) else {
            eprintln!("{}: {unit} not available on this system", mode.name());
            return;
        };
        let [_, took_sync, took_few, took_all, took_again] = readings.map(|reading| Some(reading.seconds));
        let above = |bytes: u64| bytes.saturating_sub(before.now);
        let each = Scale::Each;
        let times = |level: Level| Scale::Times(above(level.now));
        let rows = [
            ("settled after sync", sync.now, each(self.objects), Some(SETTLED), None),
            ("peak of initial sync", sync.peak, times(sync), Some(SYNC_PEAK), took_sync),
            ("peak of relist, 1 % changed", few.peak, times(sync), Some(FEW_PEAK), took_few),
            ("settled after it", few.now, times(sync), None, None),
            ("peak of relist, all changed", all.peak, times(few), Some(ALL_PEAK), took_all),
            ("settled after it", all.now, times(few), None, None),
            ("peak of the same again", again.peak, times(few), None, took_again),
            ("settled after it", again.now, times(few), None, None),
        ];
        self.rows.extend(rows.map(|(what, bytes, scale, target, seconds)| Row {
            mode,
            what,
            unit,
            bytes: above(bytes),
            scale,
            target,
            seconds,
        }));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pod, managed) = self.sizes;
        writeln!(
            f,
            "\n{} pods of {pod} bytes of JSON, {managed} of them managedFields; handlers: {}.\n\
             Bytes above those before the first request; peaks as multiples of the settled memory.\n",
            self.objects, self.handlers
        )?;
        let head = ["mode", "measure", "what", "MB", "ratio", "target", "", "seconds"];
        let [mode, unit, what, bytes, ratio, target, verdict, seconds] = head;
        writeln!(
            f,
            "{mode:<11}{unit:<12}{what:<29}{bytes:>8}{ratio:>13}{target:>13}  {verdict:<6}{seconds:>9}"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        let missed = self.rows.iter().filter(|row| row.is_met() == Some(false)).count();
        let with_target = self.rows.iter().filter(|row| row.target.is_some()).count();
        writeln!(f, "\n{} of {with_target} targets met", with_target - missed)
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        match self.scale {
            Scale::Each(objects) => self.bytes as f64 / objects as f64,
            Scale::Times(settled) => self.bytes as f64 / settled as f64,
        }
    }

    fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.ratio() <= target)
    }

    fn scaled(&self, value: f64) -> String {
        match self.scale {
            Scale::Each(_) => format!("{value:.0} B/pod"),
            Scale::Times(_) => format!("{value:.2} x"),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, unit, what, megabytes) = (self.mode.name(), self.unit, self.what, self.bytes as f64 / 1e6);
        let target = self.target.map_or_else(|| "-".to_owned(), |target| self.scaled(target));
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let seconds = self.seconds.map(|seconds| format!("{seconds:.1}")).unwrap_or_default();
        let ratio = self.scaled(self.ratio());
        let line = format!(
            "{mode:<11}{unit:<12}{what:<29}{megabytes:>8.1}{ratio:>13}{target:>13}  {verdict:<6}{seconds:>9}"
        );
        f.write_str(line.trim_end())
    }
}
