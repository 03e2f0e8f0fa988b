//! Messages on stderr: lines, and a progress bar during the initial list.
//!
//! The bar is shown on terminals only and hidden while a line is printed. No data is printed here. While the
//! bar is hidden, it is locked. Meanwhile nothing may be printed that can block, unless it goes to the same
//! terminal.

use crate::show::escape::escape;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

/// The terminal of the user. Clones share the progress bar.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    bar: ProgressBar,
    /// Whether stdout is the terminal that shows the bar.
    is_stdout_terminal: bool,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { bar, is_stdout_terminal: io::stdout().is_terminal() && io::stderr().is_terminal() }
    }

    /// Prints a message.
    pub(crate) fn info(&self, line: &str) {
        self.line(Style::new().dimmed(), "", line);
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, line: &str) {
        self.line(AnsiColor::Yellow.on_default().bold(), "warning: ", line);
    }

    /// Shows the progress bar if stderr is a terminal.
    pub(crate) fn begin(&self) {
        // The bar is drawn before the first progress is known.
        self.style("{spinner} {msg}");
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.enable_steady_tick(Duration::from_millis(120));
    }

    /// Updates the progress bar: its message, the objects received and, if known, the total number of
    /// objects.
    pub(crate) fn progress(&self, done: u64, total: Option<u64>, message: &str) {
        if let Some(total) = total {
            self.bar.set_length(total);
            self.style("{spinner} {msg}  {wide_bar} {pos}/{len}");
        } else {
            self.style(if done == 0 { "{spinner} {msg}" } else { "{spinner} {msg}  {pos} objects" });
        }
        self.bar.set_position(done);
        self.bar.set_message(escape(message).into_owned());
    }

    /// Removes the progress bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Hides the progress bar while `print` writes to stdout.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.is_stdout_terminal { self.bar.suspend(print) } else { print() }
    }

    /// Prints a line; `style` applies to the label, or to the whole line if there is no label.
    fn line(&self, style: Style, label: &str, line: &str) {
        let line = escape(line);
        self.bar.suspend(|| match label {
            "" => anstream::eprintln!("{style}{line}{style:#}"),
            label => anstream::eprintln!("{style}{label}{style:#}{line}"),
        });
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━━─"));
        }
    }
}
