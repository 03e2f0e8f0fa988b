//! What a process says of itself: processor time since a moment, and memory as the kernel counts it.

use std::fs;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// A moment, in wall time and in processor time.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    begun: Instant,
    cpu: f64,
}

impl Gauge {
    /// Now.
    pub fn begin() -> Self {
        Self { begun: Instant::now(), cpu: cpu() }
    }

    /// Seconds since then.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// An answer with the time since then, and with more.
    pub fn answer(&self, more: Value) -> Value {
        let mut answer = more;
        answer["seconds"] = json!(self.seconds());
        answer["cpu"] = json!(cpu() - self.cpu);
        answer
    }

    /// An answer with what the process has taken; `reset` counts the peak anew from here.
    pub fn report(reset: bool) -> Value {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        if reset {
            // Where the kernel does not know this file, it does not know the peak either.
            let _ = fs::write("/proc/self/clear_refs", "5");
        }
        json!({"rss": bytes("VmRSS"), "peak": bytes("VmHWM"), "cpu": cpu()})
    }
}

/// Processor seconds of the whole process.
#[allow(clippy::cast_precision_loss, reason = "seconds and nanoseconds stay far below 2^52")]
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
