//! `cargo xtask record`: runs the program on a terminal and draws what it printed as an SVG file, for the README.
//!
//! Lines appear in the picture when the program printed them. A reader that asks for less motion sees all of them.

mod screen;

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::diagram::escape;
use crate::failure::Failure;
use crate::repo::Repo;
use screen::{Color, Row, Screen, Style};

const PICTURE: &str = "docs/book/src/images/watch.svg";
/// The command line, as the picture shows it.
const COMMAND: &str = "informer watch pods --demo";
const COLUMNS: usize = 112;
const ROWS: usize = 20;
const SECONDS: u64 = 30;

const CHARACTER_WIDTH: f64 = 7.85;
const LINE_HEIGHT: f64 = 19.0;
const MARGIN: f64 = 16.0;
/// Height of the bar above the lines.
const TITLE_HEIGHT: f64 = 30.0;
/// How long the complete picture is shown before it starts again.
const PAUSE: Duration = Duration::from_secs(6);

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    if let [first, ..] = args {
        return Err(Failure::Usage(format!("`record` does not accept `{first}`")));
    }
    repo.run_cargo("build --bin informer --locked", &[])?;
    let screen = record(repo)?;
    // As on a terminal, earlier lines have left the screen.
    let rows = screen.rows();
    let shown = &rows[rows.len().saturating_sub(ROWS)..];
    if shown.len() < 2 {
        return Err(Failure::Failed("the program printed nothing".to_owned()));
    }
    repo.write(PICTURE, &draw(COMMAND, shown))?;
    println!("{PICTURE}");
    Ok(())
}

/// Runs the program on a terminal for some seconds.
fn record(repo: &Repo) -> Result<Screen, Failure> {
    let failed =
        |error: &std::io::Error| Failure::Failed(format!("cannot run `script` (util-linux): {error}"));
    let own = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
    let call = COMMAND.replacen("informer", &format!("'{}'", own.with_file_name("informer").display()), 1);
    let line = format!("stty cols {COLUMNS} rows {ROWS}; timeout -s INT {SECONDS} {call}");
    let mut child = Command::new("script")
        .current_dir(repo.path(""))
        .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env("TZ", "UTC")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let started = Instant::now();
    let (mut screen, mut buffer) = (Screen::default(), [0; 4096]);
    if let Some(mut stdout) = child.stdout.take() {
        while let Ok(read @ 1..) = stdout.read(&mut buffer) {
            screen.write(&buffer[..read], started.elapsed());
        }
    }
    child.wait().map_err(|error| failed(&error))?;
    Ok(screen)
}

/// Draws a command and its output.
#[allow(clippy::cast_precision_loss, reason = "numbers of lines and columns")]
fn draw(command: &str, rows: &[Row]) -> String {
    let (width, height) = (
        CHARACTER_WIDTH.mul_add(COLUMNS as f64, 2.0 * MARGIN),
        LINE_HEIGHT.mul_add(rows.len() as f64, TITLE_HEIGHT + MARGIN),
    );
    let start = rows.first().map_or(Duration::ZERO, |row| row.time);
    let last = rows.iter().map(|row| row.time).max().unwrap_or(start);
    let period = (last + PAUSE).saturating_sub(start).as_secs_f64();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\">\n\
         <title>{command}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"window\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\"/>\n\
         <circle class=\"button\" cx=\"20\" cy=\"17\" r=\"5\"/><circle class=\"button\" cx=\"38\" cy=\"17\" r=\"5\"/>\
         <circle class=\"button\" cx=\"56\" cy=\"17\" r=\"5\"/>\n\
         <text class=\"dim\" x=\"{:.0}\" y=\"21\" text-anchor=\"middle\">{command}</text>\n<g>\n",
        width / 2.0
    );
    let baseline = |line: usize| LINE_HEIGHT.mul_add(line as f64, TITLE_HEIGHT + 14.0);
    for (line, row) in (0..).zip(rows) {
        let percent = 100.0 * row.time.saturating_sub(start).as_secs_f64() / period;
        let y = baseline(line);
        // Writing to a String cannot fail.
        let _ = write!(svg, "<text class=\"line\" x=\"{MARGIN}\" y=\"{y:.1}\"");
        if percent > 0.5 {
            let _ = write!(svg, " style=\"animation: at{line} {period:.1}s step-end infinite\"");
        }
        let _ = writeln!(svg, ">{}</text>", spans(row));
        if percent > 0.5 {
            let frames = format!("@keyframes at{line}{{0%{{opacity:0}}{percent:.1}%{{opacity:1}}}}");
            let _ = writeln!(svg, "<style>{frames}</style>");
        }
    }
    svg + "</g>\n</svg>\n"
}

/// Colors follow the reader's scheme.
const STYLE: &str = "text{white-space:pre;font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:var(--text)}\
    svg{--window:#fafafa;--edge:#d0d7de;--text:#24292f;--red:#b3261e;--green:#1a7f37;--yellow:#8a6100;--blue:#0550ae;--magenta:#8250df;--cyan:#1b7c83}\
    @media(prefers-color-scheme:dark){svg{--window:#161b22;--edge:#30363d;--text:#e6edf3;--red:#ff7b72;--green:#56d364;--yellow:#e3b341;--blue:#79c0ff;--magenta:#d2a8ff;--cyan:#76e3ea}}\
    @media(prefers-reduced-motion:reduce){.line{animation:none!important}}\
    .window{fill:var(--window);stroke:var(--edge)}.button{fill:var(--edge)}.bold{font-weight:bold}.dim{opacity:.65}\
    .red{fill:var(--red)}.green{fill:var(--green)}.yellow{fill:var(--yellow)}.blue{fill:var(--blue)}.magenta{fill:var(--magenta)}.cyan{fill:var(--cyan)}";

/// Returns the text of a line; parts of the same style are one element.
#[allow(clippy::cast_precision_loss, reason = "a column")]
fn spans(row: &Row) -> String {
    let mut text = String::new();
    let mut column = 0;
    for part in row.cells.chunk_by(|left, right| left.1 == right.1) {
        let content = escape(&part.iter().map(|(letter, _)| letter).collect::<String>());
        let x = CHARACTER_WIDTH.mul_add(column as f64, MARGIN);
        let class = class(part[0].1);
        // The position keeps columns aligned with any font.
        let _ = write!(text, "<tspan x=\"{x:.1}\"{class}>{content}</tspan>");
        column += part.len();
    }
    text
}

fn class(style: Style) -> String {
    let color = match style.color {
        Color::Default => "",
        Color::Red => "red",
        Color::Green => "green",
        Color::Yellow => "yellow",
        Color::Blue => "blue",
        Color::Magenta => "magenta",
        Color::Cyan => "cyan",
    };
    let flags = [(style.bold, "bold"), (style.dim, "dim")];
    let names = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name);
    let names: Vec<&str> = names.chain((!color.is_empty()).then_some(color)).collect();
    if names.is_empty() { String::new() } else { format!(" class=\"{}\"", names.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(output: &[(u64, &str)]) -> Vec<Row> {
        let mut screen = Screen::default();
        for (second, text) in output {
            screen.write(text.as_bytes(), Duration::from_secs(*second));
        }
        screen.rows()
    }

    #[test]
    fn lines_appear_when_they_were_printed() {
        let picture = draw("informer", &rows(&[(1, "a <b>\r\n"), (3, "\x1b[1;31mc\x1b[0m d\r\n")]));
        assert!(picture.contains("<tspan x=\"16.0\">a &lt;b&gt;</tspan>"), "{picture}");
        assert!(picture.contains("class=\"bold red\">c</tspan><tspan x=\"23.9\"> d</tspan>"), "{picture}");
        // Two seconds after the first line, of two and the pause.
        assert!(picture.contains("@keyframes at1{0%{opacity:0}25.0%{opacity:1}}"), "{picture}");
        assert_eq!(picture.matches("@keyframes").count(), 1);
    }
}
