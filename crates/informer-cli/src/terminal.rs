//! Messages on stderr: lines, and a progress bar during the initial list. The screen that `--live` redraws in place.
//!
//! The bar is shown on terminals only and hidden while a line is printed. While the bar is hidden, it is locked.
//! Meanwhile nothing may be printed that can block, unless it goes to the same terminal.
//!
//! The screen of `--live` is the alternate screen of the terminal: the lines above are there again at the end. No
//! message may be printed meanwhile.

use crate::show::escape::escape;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// Switches to the alternate screen and hides the cursor.
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
/// Resets colors, shows the cursor and switches back.
const LEAVE_SCREEN: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The terminal of the user. Clones share the progress bar and the screen.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    bar: ProgressBar,
    /// Whether stdout is the terminal that shows the bar.
    is_shared_with_stdout: bool,
    screen: Arc<Mutex<ScreenState>>,
}

/// State of the alternate screen. `Left` is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScreenState {
    NotEntered,
    Entered,
    /// Left for good, or never to be entered: a late drawing must not end up among the lines.
    Left,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let is_shared_with_stdout = io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { bar, is_shared_with_stdout, screen: Arc::new(Mutex::new(ScreenState::NotEntered)) }
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

    /// Removes the progress bar and leaves the screen of `--live`. May block if the terminal does.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        // Also if it was not entered: a drawing may be waiting for its thread.
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *screen, ScreenState::Left) == ScreenState::Entered {
            let mut stdout = io::stdout();
            // Without a terminal there is nothing to restore.
            drop(stdout.write_all(LEAVE_SCREEN.as_bytes()).and_then(|()| stdout.flush()));
        }
    }

    /// Leaves the screen of `--live` before the message of a panic is printed: on that screen, it would disappear.
    pub(crate) fn end_on_panic(&self) {
        let (terminal, print) = (self.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that panics while it draws has the lock itself.
            if !matches!(terminal.screen.try_lock(), Err(TryLockError::WouldBlock)) {
                terminal.end();
            }
            print(panic);
        }));
    }

    /// Returns a guard that calls [`Terminal::end`] when it is dropped, even by a panic.
    pub(crate) fn end_on_drop(&self) -> EndOnDrop {
        EndOnDrop(Some(self.clone()))
    }

    /// Replaces the contents of the screen of `--live`, which has so many rows. May block if the terminal does.
    ///
    /// Fails if the screen was left for good, as after a panic of another thread.
    pub(crate) fn draw(&self, lines: &[String], rows: usize) -> io::Result<()> {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let enter = match *screen {
            ScreenState::NotEntered => ENTER_SCREEN,
            ScreenState::Entered => "",
            ScreenState::Left => return Err(io::Error::other("the screen was left")),
        };
        *screen = ScreenState::Entered;
        let has_colors = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
        let mut stdout = io::stdout().lock();
        stdout.write_all(format!("{enter}{}", frame(lines, rows, has_colors)).as_bytes())?;
        stdout.flush()
    }

    /// Hides the progress bar while `print` writes to stdout.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        if self.is_shared_with_stdout { self.bar.suspend(print) } else { print() }
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

/// Writes a text to stdout. A reader that closes the output early is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Restores the terminal when it is dropped.
#[derive(Debug)]
pub(crate) struct EndOnDrop(Option<Terminal>);

impl EndOnDrop {
    /// Makes the drop do nothing, because the terminal is restored elsewhere.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(terminal) = &self.0 {
            terminal.end();
        }
    }
}

/// Returns the text that replaces the contents of a screen with so many rows. Clearing line by line instead of the
/// whole screen avoids flicker.
///
/// A line is cleared before its text: after a text of full width, the cursor is still on the last column, and clearing
/// would erase its character.
fn frame(lines: &[String], rows: usize, has_colors: bool) -> String {
    let line = |line: &String| {
        if has_colors {
            format!("\x1b[K{line}\x1b[0m")
        } else {
            format!("\x1b[K{}", anstream::adapter::strip_str(line))
        }
    };
    // No line break after the last row, which would scroll the screen.
    let rest = if lines.len() < rows { "\r\n\x1b[J" } else { "" };
    format!("\x1b[H{}{rest}", lines.iter().map(line).collect::<Vec<_>>().join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_overwrites_lines_and_clears_the_rest() {
        let lines = ["\x1b[1ma\x1b[0m".to_owned(), "b".to_owned()];
        assert_eq!(frame(&lines, 3, false), "\x1b[H\x1b[Ka\r\n\x1b[Kb\r\n\x1b[J");
        assert_eq!(frame(&lines, 3, true), "\x1b[H\x1b[K\x1b[1ma\x1b[0m\x1b[0m\r\n\x1b[Kb\x1b[0m\r\n\x1b[J");
    }

    /// Regression: the last character of a line of full width was missing on xterm. The line was cleared after its
    /// text, when the cursor was still on the last column. The test had short lines only.
    #[test]
    fn nothing_is_cleared_after_the_text_of_a_line() {
        for rows in 1..4 {
            let lines = vec!["x".repeat(80); rows];
            let screen = frame(&lines, rows, false);
            assert_eq!(screen.matches("\r\n").count(), rows - 1, "{screen:?}");
            assert!(screen.ends_with('x') && !screen.contains("x\x1b"), "{screen:?}");
        }
    }

    /// Regression: the shell stayed on the alternate screen. Ctrl-C arrived while the first drawing waited for its
    /// thread; the drawing entered the screen after the end. Only a screen that was entered already was marked as left,
    /// and the test on a pseudo terminal always waits for drawings.
    #[test]
    fn drawing_after_the_end_does_not_enter_the_screen() {
        let terminal = Terminal::new();
        terminal.end();
        assert!(terminal.draw(&["late".to_owned()], 1).is_err());
        assert_eq!(*terminal.screen.lock().unwrap(), ScreenState::Left);
    }

    /// Regression: after a panic, the shell stayed on the alternate screen, because nothing restored the terminal on
    /// this path. No test left `--live` other than by a signal.
    #[test]
    fn guard_ends_the_terminal_unless_disarmed() {
        let terminal = Terminal::new();
        terminal.end_on_drop().disarm();
        assert_eq!(*terminal.screen.lock().unwrap(), ScreenState::NotEntered);
        let shared = terminal.clone();
        let outcome = std::panic::catch_unwind(move || {
            let _guard = shared.end_on_drop();
            panic!("expected by the test");
        });
        assert!(outcome.is_err());
        assert_eq!(*terminal.screen.lock().unwrap(), ScreenState::Left);
    }
}
