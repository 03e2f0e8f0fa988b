//! Process statistics: CPU time since a starting point, and memory as counted by the kernel.

use std::fs;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// A starting point in wall time and CPU time.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStats {
    started: Instant,
    cpu: f64,
}

impl ProcessStats {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu() }
    }

    /// Returns seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Builds a response with the elapsed times and the given fields.
    pub fn response(&self, fields: Value) -> Value {
        let mut response = fields;
        response["seconds"] = json!(self.seconds());
        response["cpu"] = json!(cpu() - self.cpu);
        response
    }

    /// Builds a response with the memory and CPU time of the process; `reset` restarts the measurement of the
    /// peak.
    pub fn report(reset: bool) -> Value {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        if reset {
            // A kernel without this file does not report the peak either.
            let _ = fs::write("/proc/self/clear_refs", "5");
        }
        json!({"rss": bytes("VmRSS"), "anonymous": bytes("RssAnon"), "peak": bytes("VmHWM"), "cpu": cpu()})
    }
}

/// Returns the CPU seconds of the whole process.
#[allow(clippy::cast_precision_loss, reason = "seconds and nanoseconds stay far below 2^52")]
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
