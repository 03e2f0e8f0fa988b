//! What is said to people, on stderr: lines, and a bar while the first set is on its way.
//!
//! The bar shows on terminals only, and steps aside for every line. Nothing here is data. While the bar stands aside it is locked: whatever may
//! wait for a reader does not print then, unless it prints to the same terminal.

use crate::show::escape::escape;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

/// A voice. Clones share the bar.
#[derive(Debug, Clone)]
pub(crate) struct Talk {
    bar: ProgressBar,
    /// Whether stdout goes to a terminal that shows the bar too.
    shares_window: bool,
}

impl Talk {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { bar, shares_window: io::stdout().is_terminal() && io::stderr().is_terminal() }
    }

    /// An ordinary line.
    pub(crate) fn say(&self, line: &str) {
        self.line(Style::new().dimmed(), "", line);
    }

    /// Something is wrong, but not the end.
    pub(crate) fn warn(&self, line: &str) {
        self.line(AnsiColor::Yellow.on_default().bold(), "warning: ", line);
    }

    /// Shows the bar, if somebody sees it.
    pub(crate) fn begin(&self) {
        // The bar is drawn before anybody says how far it is.
        self.style("{spinner} {msg}");
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.enable_steady_tick(Duration::from_millis(120));
    }

    /// How far it is: objects so far and, where they are known, in all.
    pub(crate) fn progress(&self, done: u64, total: Option<u64>, what: &str) {
        if let Some(total) = total {
            self.bar.set_length(total);
            self.style("{spinner} {msg}  {wide_bar} {pos}/{len}");
        } else {
            self.style(if done == 0 { "{spinner} {msg}" } else { "{spinner} {msg}  {pos} objects" });
        }
        self.bar.set_position(done);
        self.bar.set_message(escape(what).into_owned());
    }

    /// Takes the bar away for good.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Does something that prints to stdout, without the bar in its way.
    pub(crate) fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.shares_window { self.bar.suspend(print) } else { print() }
    }

    fn line(&self, style: Style, head: &str, line: &str) {
        let line = escape(line);
        // A label stands out; a line without one steps back.
        self.bar.suspend(|| match head {
            "" => anstream::eprintln!("{style}{line}{style:#}"),
            head => anstream::eprintln!("{style}{head}{style:#}{line}"),
        });
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━━─"));
        }
    }
}
