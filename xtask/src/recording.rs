//! `cargo xtask record`: runs the program on a terminal and draws the last lines as an SVG file, for the README.

use std::process::{Command, Stdio};

use anstyle_svg::Term;

use crate::failure::Failure;
use crate::repo::{self, Repo};

const PICTURE: &str = "docs/book/src/images/watch.svg";
/// The command line, as the picture shows it.
const COMMAND: &str = "informer watch pods --demo";
const COLUMNS: usize = 112;
const ROWS: usize = 20;
const SECONDS: u64 = 30;

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    if let [first, ..] = args {
        return Err(Failure::Usage(format!("`record` does not accept `{first}`")));
    }
    repo.run_cargo("build --bin informer --locked", &[])?;
    let output = record(repo)?.replace('\r', "");
    let lines: Vec<&str> = output.trim_end().lines().collect();
    if lines.len() < 2 {
        return Err(Failure::Failed("the program printed nothing".to_owned()));
    }
    // As on a terminal, earlier lines have left the screen.
    let shown = lines[lines.len().saturating_sub(ROWS)..].join("\n");
    repo.write(PICTURE, &Term::new().render_svg(&format!("$ {COMMAND}\n{shown}")))?;
    println!("{PICTURE}");
    Ok(())
}

/// Runs the program on a terminal for some seconds, and returns what it printed to stdout.
fn record(repo: &Repo) -> Result<String, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
    let call = COMMAND.replacen("informer", &format!("'{}'", own.with_file_name("informer").display()), 1);
    let line =
        format!("stty cols {COLUMNS} rows {ROWS}; timeout -s INT {SECONDS} {call} 2>/dev/null || true");
    let mut script = Command::new("script");
    script
        .current_dir(repo.path(""))
        .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env("TZ", "UTC")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    repo::output(&mut script, "script (util-linux)")
}
