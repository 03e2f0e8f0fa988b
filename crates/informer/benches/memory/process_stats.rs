//! Memory of this process, current and peak, as counted by the allocator and by the kernel.

use crate::ALLOCATOR;
use std::fs;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes now, and its peak since [`begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

/// Measurements at the end of a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// Bytes counted by the allocator.
    pub(crate) live: Level,
    /// Bytes counted by the kernel, where available.
    pub(crate) rss: Option<Level>,
    /// Duration of the phase, without the wait for memory to settle.
    pub(crate) seconds: f64,
}

/// Begins a phase: resets the peaks.
pub(crate) fn begin() {
    // Where the kernel does not have this file, its measurements are omitted anyway.
    let _ = fs::write("/proc/self/clear_refs", "5");
    ALLOCATOR.reset_peak_usage();
}

/// Reads the current values. Call it when the process has settled: see [`settle`].
pub(crate) fn read(seconds: f64) -> Reading {
    let live = Level { now: ALLOCATOR.current_usage() as u64, peak: ALLOCATOR.peak_usage() as u64 };
    Reading { live, rss: rss(), seconds }
}

/// Waits until memory has been constant for a while.
pub(crate) async fn settle() {
    const STABLE_SAMPLES: u32 = 8;
    const TOLERANCE_BYTES: usize = 64 * 1024;
    let (mut level, mut still) = (ALLOCATOR.current_usage(), 0);
    while still < STABLE_SAMPLES {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = ALLOCATOR.current_usage();
        still = if now.abs_diff(level) <= TOLERANCE_BYTES { still + 1 } else { 0 };
        level = now;
    }
}

fn rss() -> Option<Level> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    Some(Level { now: bytes("VmRSS")?, peak: bytes("VmHWM")? })
}

impl Reading {
    /// Formats the measurements as one line for the parent process.
    pub(crate) fn line(&self) -> String {
        let rss = self.rss.map(|rss| format!(" {} {}", rss.now, rss.peak)).unwrap_or_default();
        format!("{} {} {}{rss}", self.seconds, self.live.now, self.live.peak)
    }

    /// Parses the output of [`Reading::line`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        fn next<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
            words.next()?.parse().ok()
        }
        let words = &mut text.split(' ');
        let seconds = next(words)?;
        let live = Level { now: next(words)?, peak: next(words)? };
        let rss = next(words).zip(next(words)).map(|(now, peak)| Level { now, peak });
        Some(Self { live, rss, seconds })
    }
}
