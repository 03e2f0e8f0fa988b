//! The report: throughput, CPU time and latency of frames.

use std::fmt;
use std::time::{Duration, Instant};

/// Measures elapsed time and CPU time.
pub(crate) struct Meter {
    started: Instant,
    cpu_time: Option<Duration>,
}

/// Elapsed time, and CPU time of the thread if the system reports it.
pub(crate) struct Spent {
    clock: Duration,
    cpu_time: Option<Duration>,
}

impl Meter {
    pub(crate) fn begin() -> Self {
        Meter { started: Instant::now(), cpu_time: thread_cpu_time() }
    }

    pub(crate) fn end(self) -> Spent {
        let cpu_time = thread_cpu_time().zip(self.cpu_time).map(|(now, then)| now.saturating_sub(then));
        Spent { clock: self.started.elapsed(), cpu_time }
    }
}

/// Returns the CPU time of this thread on Linux.
fn thread_cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The results of one run, a row of the report.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) writes: usize,
    pub(crate) frames: u64,
    pub(crate) spent: Spent,
    /// Target rate of writes, for rows with a fixed rate.
    pub(crate) target_writes_per_second: Option<u64>,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) equal: bool,
    /// Number of JSON and protobuf encodings.
    pub(crate) encodings: (u64, u64),
}

pub(crate) fn head() -> String {
    let [name, writes, frames, share, cost] = ["", "writes/s", "frames/s", "of a core", "µs/write"];
    let [per, p50, p99, max, target] = ["/s of core", "50 %", "99 %", "max", "target"];
    let encoded = "encoded a write";
    format!(
        "{name:<34}{writes:>9}{frames:>11}{share:>10}{cost:>10}{per:>12}{p50:>9}{p99:>9}{max:>9}{encoded:>22}  {target}"
    )
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = self.spent.clock.as_secs_f64();
        let cpu_time = self.spent.cpu_time.map(|cpu_time| cpu_time.as_secs_f64());
        let (writes, frames) = (self.writes as f64, self.frames as f64);
        let share =
            cpu_time.map_or_else(|| "-".to_owned(), |cpu_time| format!("{:.0} %", 100.0 * cpu_time / clock));
        let cost =
            cpu_time.map_or_else(|| "-".to_owned(), |cpu_time| format!("{:.0}", 1e6 * cpu_time / writes));
        let per = cpu_time.map_or_else(|| "-".to_owned(), |cpu_time| format!("{:.0}", writes / cpu_time));
        let latency = |share: usize| {
            let last = self.latencies.len().checked_sub(1);
            let at = last.map(|last| self.latencies[(self.latencies.len() * share / 100).min(last)]);
            at.map_or_else(|| "-".to_owned(), |latency| format!("{:.1} ms", 1e3 * latency.as_secs_f64()))
        };
        let verdict_text = self.target_writes_per_second.map_or_else(String::new, |target| {
            // Allows 0.5 % for a late start and the last tick.
            let met = writes / clock >= target as f64 * 0.995;
            format!("{target} writes/s: {}", verdict(met))
        });
        let encoded = |count: u64| count as f64 / writes;
        let (json, protobuf) = (encoded(self.encodings.0), encoded(self.encodings.1));
        let encoded = format!("{json:.2} json, {protobuf:.2} pb");
        let line = format!(
            "{:<34}{:>9.0}{:>11.0}{share:>10}{cost:>10}{per:>12}{:>9}{:>9}{:>9}{encoded:>22}  {verdict_text}",
            self.name,
            writes / clock,
            frames / clock,
            latency(50),
            latency(99),
            latency(100),
        );
        f.write_str(line.trim_end())
    }
}
