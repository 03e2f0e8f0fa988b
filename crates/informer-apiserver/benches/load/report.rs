//! The table: how much was done, what it cost, and how long a frame was under way.

use std::fmt;
use std::time::{Duration, Instant};

/// What passed between two moments.
pub(crate) struct Meter {
    begun: Instant,
    ran: Option<Duration>,
}

/// Time on the clock, and time that the thread was running, if the system tells.
pub(crate) struct Spent {
    clock: Duration,
    ran: Option<Duration>,
}

impl Meter {
    pub(crate) fn begin() -> Self {
        Meter { begun: Instant::now(), ran: running_time() }
    }

    pub(crate) fn end(self) -> Spent {
        let ran = running_time().zip(self.ran).map(|(now, then)| now.saturating_sub(then));
        Spent { clock: self.begun.elapsed(), ran }
    }
}

/// How long this thread has been running, as Linux counts it.
fn running_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) writes: usize,
    pub(crate) frames: u64,
    pub(crate) spent: Spent,
    /// Writes a second, of a row that is paced.
    pub(crate) target_writes_per_second: Option<u64>,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) equal: bool,
    /// How often an object was encoded, as JSON and as protobuf.
    pub(crate) encodings: (u64, u64),
}

pub(crate) fn head() -> String {
    let [what, writes, frames, share, cost] = ["", "writes/s", "frames/s", "of a core", "µs/write"];
    let [per, half, most, worst, bar] = ["/s of core", "50 %", "99 %", "max", "bar"];
    let encoded = "encoded a write";
    format!(
        "{what:<34}{writes:>9}{frames:>11}{share:>10}{cost:>10}{per:>12}{half:>9}{most:>9}{worst:>9}{encoded:>22}  {bar}"
    )
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = self.spent.clock.as_secs_f64();
        let ran = self.spent.ran.map(|ran| ran.as_secs_f64());
        let (writes, frames) = (self.writes as f64, self.frames as f64);
        let share = ran.map_or_else(|| "-".to_owned(), |ran| format!("{:.0} %", 100.0 * ran / clock));
        let cost = ran.map_or_else(|| "-".to_owned(), |ran| format!("{:.0}", 1e6 * ran / writes));
        let per = ran.map_or_else(|| "-".to_owned(), |ran| format!("{:.0}", writes / ran));
        let took = |share: usize| {
            let last = self.latencies.len().checked_sub(1);
            let at = last.map(|last| self.latencies[(self.latencies.len() * share / 100).min(last)]);
            at.map_or_else(|| "-".to_owned(), |took| format!("{:.1} ms", 1e3 * took.as_secs_f64()))
        };
        let bar = self.target_writes_per_second.map_or_else(String::new, |asked| {
            // One part in two hundred is what a late start and the last tick may cost.
            let met = writes / clock >= asked as f64 * 0.995;
            format!("{asked} writes/s: {}", verdict(met))
        });
        let encoded = |count: u64| count as f64 / writes;
        let (json, protobuf) = (encoded(self.encodings.0), encoded(self.encodings.1));
        let encoded = format!("{json:.2} json, {protobuf:.2} pb");
        let line = format!(
            "{:<34}{:>9.0}{:>11.0}{share:>10}{cost:>10}{per:>12}{:>9}{:>9}{:>9}{encoded:>22}  {bar}",
            self.what,
            writes / clock,
            frames / clock,
            took(50),
            took(99),
            took(100),
        );
        f.write_str(line.trim_end())
    }
}
