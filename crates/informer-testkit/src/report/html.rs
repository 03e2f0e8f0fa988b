//! A failure as a self-contained HTML page, with one lane for each actor.

use std::fmt::Write as _;

use crate::trace::{TraceEntry, TraceKind};

use super::SimulationFailure;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; }
p, ul { margin: .25rem 0 .75rem; max-width: 80rem; }
code, td { font-family: ui-monospace, monospace; font-size: 12px; }
table { border-collapse: collapse; margin-top: 1rem; }
th { position: sticky; top: 0; background: Canvas; text-align: left; padding: .3rem .6rem; border-bottom: 2px solid var(--line); }
td { vertical-align: top; padding: .1rem .6rem; border-left: 1px solid var(--line); max-width: 34rem; overflow-wrap: anywhere; }
td.time { border-left: 0; text-align: right; color: GrayText; white-space: nowrap; }
tr:hover { background: var(--soft); }
.request::before { content: '\\2192\\a0'; color: GrayText; }
.response::before, .watch::before { content: '\\2190\\a0'; color: GrayText; }
.watch { color: GrayText; }
.error { color: light-dark(#b06000, #ffb454); }
.fault { color: light-dark(#a000a0, #e58fff); font-weight: 600; }
.violation { color: light-dark(#c00000, #ff7b72); font-weight: 600; }
.skipped { text-decoration: line-through; color: GrayText; }
";

/// Returns the page.
pub(crate) fn page(failure: &SimulationFailure) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let title = escape(&format!("{} (seed {})", failure.check, failure.seed));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>");
    if !failure.message.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&failure.message));
    }
    let _ = writeln!(out, "<p>Replay: <code>{}</code></p>", escape(failure.replay_command()));
    let faults = failure.faults.iter().map(|fault| ("", fault.to_string()));
    list(&mut out, &failure.faults_title(), faults);
    if !failure.steps.is_empty() {
        let steps = failure.steps.iter();
        let steps = steps.map(|step| (if step.is_needed { "" } else { "skipped" }, step.text.clone()));
        list(&mut out, "Steps of the scenario:", steps);
    }
    table(&mut out, &failure.timeline);
    out.push_str("</html>\n");
    out
}

fn list(out: &mut String, title: &str, items: impl ExactSizeIterator<Item = (&'static str, String)>) {
    let _ = writeln!(out, "<p>{title}</p>");
    if items.len() == 0 {
        return;
    }
    out.push_str("<ul>\n");
    for (class, item) in items {
        let _ = writeln!(out, "<li class=\"{class}\">{}</li>", escape(&item));
    }
    out.push_str("</ul>\n");
}

/// Writes the timeline: a column for each actor, in the order in which they first appear.
fn table(out: &mut String, timeline: &[TraceEntry]) {
    let mut lanes: Vec<&str> = Vec::new();
    for entry in timeline {
        if !lanes.contains(&entry.actor.as_str()) {
            lanes.push(&entry.actor);
        }
    }
    out.push_str("<table>\n<thead><tr><th>time</th>");
    for lane in &lanes {
        let _ = write!(out, "<th>{}</th>", escape(lane));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for entry in timeline {
        let time = format!("{}.{:03}", entry.time.as_secs(), entry.time.subsec_millis());
        let _ = write!(out, "<tr><td class=\"time\">{time}</td>");
        for lane in &lanes {
            if *lane == entry.actor {
                let _ = write!(out, "<td class=\"{}\">{}</td>", class(entry), escape(&entry.text));
            } else {
                out.push_str("<td></td>");
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn class(entry: &TraceEntry) -> &'static str {
    let is_error = !entry.text.starts_with('2');
    match entry.kind {
        TraceKind::Request => "request",
        TraceKind::Response if is_error => "response error",
        TraceKind::Response => "response",
        TraceKind::Watch => "watch",
        TraceKind::Fault => "fault",
        TraceKind::Violation => "violation",
        TraceKind::Write | TraceKind::Note => "",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
