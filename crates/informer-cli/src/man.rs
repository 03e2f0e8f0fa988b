//! `informer man`: prints manual pages, made from the definition of the command line.

use crate::args::Args;
use crate::cli_error::CliError;
use crate::terminal::print;
use clap::CommandFactory as _;

/// Prints the page of a command, or of the program.
pub(crate) fn run(command: Option<&str>) -> Result<(), CliError> {
    let page = page(command).ok_or_else(|| {
        let hint = format!("commands: {}", commands().join(", "));
        CliError::usage(format!("unknown command \"{}\"", command.unwrap_or_default()), hint)
    })?;
    print(&page).map_err(|error| CliError::new(format!("write manual page: {error}"), ""))
}

/// Returns the commands that have a page of their own.
fn commands() -> Vec<String> {
    let args = Args::command();
    args.get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Returns a page. `None` if the command does not exist.
fn page(command: Option<&str>) -> Option<String> {
    // There is no page of `help`, which clap adds.
    let mut args = Args::command().disable_help_subcommand(true);
    // Gives commands the options of all commands, and their full names.
    args.build();
    let command = match command {
        None => args,
        Some(name) => args.get_subcommands().find(|command| command.get_name() == name)?.clone(),
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).manual("informer").render(&mut page).ok()?;
    Some(keep_lines_of_examples(&String::from_utf8_lossy(&page)))
}

/// Turns off filling in the last section, which consists of examples and exit codes.
fn keep_lines_of_examples(page: &str) -> String {
    page.replacen(".SH EXTRA\n", ".SH NOTES\n.nf\n", 1).replacen(".SH VERSION\n", ".fi\n.SH VERSION\n", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_name() {
        let all = commands();
        assert!(all.contains(&"watch".to_owned()) && all.contains(&"man".to_owned()), "{all:?}");
        let program = page(None).unwrap();
        assert!(!program.contains("help(1)"), "{program}");
        for command in &all {
            assert!(program.contains(&format!("informer\\-{command}(1)")), "{command}: {program}");
            let page = page(Some(command)).unwrap();
            assert!(page.contains(&format!("informer\\-{command} ")), "{page}");
        }
        assert_eq!(page(Some("unknown")), None);
    }

    #[test]
    fn page_has_options_and_examples_line_by_line() {
        let page = page(Some("get")).unwrap();
        assert!(
            page.contains("\\fB\\-\\-no\\-headers\\fR") && page.contains("\\fB\\-\\-color\\fR"),
            "{page}"
        );
        assert!(page.contains(".SH NOTES\n.nf\nExamples:\n"), "{page}");
        assert!(!page.contains("resync"), "{page}");
    }
}
