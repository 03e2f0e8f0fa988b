//! The project's commands: `cargo xtask <command>`.
//!
//! Each command has a file or folder and a row in [`COMMANDS`]. Commands are written in Rust, so that they
//! run wherever the project builds and are reviewed, linted and tested like the rest of it.

mod api;
#[cfg(unix)]
mod bench;
mod book;
mod ci;
mod codegen;
#[cfg(unix)]
mod control_plane;
mod crash;
mod dist;
mod failure;
mod fuzz;
mod included;
mod lines;
mod package;
mod recording;
mod release;
mod repo;
mod simulate;
#[cfg(unix)]
mod suites;
mod tidy;
mod tools;

use std::fmt::Write as _;
use std::process::ExitCode;

use failure::Failure;
use repo::Repo;

struct Command {
    name: &'static str,
    options: &'static str,
    about: &'static str,
    run: fn(&Repo, &[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    #[cfg(unix)]
    Command {
        name: "bench",
        options: "[--quick] [FILTER]",
        about: "compare informer with client-go, kube-rs and the baseline, in scenarios whose names contain FILTER; also --times N, --control-plane KUBECONFIG, --name NAME, and --tables to write only the tables and plots of the documents",
        run: bench::run,
    },
    Command {
        name: "book",
        options: "",
        about: "renew the programs in the pages of the book, and build it as web pages",
        run: book::run,
    },
    Command {
        name: "ci",
        options: "[--only STAGE,…]",
        about: "run every check a change must pass",
        run: ci::run,
    },
    Command {
        name: "codegen",
        options: "[--check]",
        about: "generate the tables and accessors of all kinds; --check only compares",
        run: codegen::run,
    },
    Command {
        name: "crash",
        options: "[--seeds N] [--kills N]",
        about: "crash processes with saved caches: 40,000 times on a simulated disk, and 2,000 real ones, in a release build",
        run: crash::run,
    },
    Command {
        name: "dist",
        options: "[--target TRIPLE]",
        about: "build the program for a release: a reproducible archive with completions and manual pages, for this machine or a target that it can run",
        run: dist::run,
    },
    Command {
        name: "fuzz",
        options: "[--seconds N]",
        about: "read malformed responses for one minute; also --inputs N, --seed S, and --input N to repeat one input",
        run: fuzz::run,
    },
    #[cfg(unix)]
    Command {
        name: "control-plane",
        options: "up|down|kubectl|test",
        about: "run etcd and kube-apiserver: `up` prints a kubeconfig, `kubectl` the path of kubectl, `test [NAME]` runs the test suites",
        run: control_plane::run,
    },
    Command {
        name: "lines",
        options: "",
        about: "count the lines of Rust, per crate and kind",
        run: lines::run,
    },
    Command {
        name: "package",
        options: "",
        about: "unpack the packages of the crates, and print the `[patch]` section of a project that uses them",
        run: package::run,
    },
    Command {
        name: "record",
        options: "",
        about: "run the program on a terminal for some seconds, and draw its output for the README",
        run: recording::run,
    },
    Command {
        name: "simulate",
        options: "[--seeds N] [TEST…]",
        about: "run the simulations of the examples and of the controllers with bugs with 10,000 seeds each, in a release build",
        run: simulate::run,
    },
    #[cfg(unix)]
    Command {
        name: "suites",
        options: "[--quick] [SUITE…]",
        about: "run test suites of controller-runtime and kube-rs against the embedded server and kube-apiserver; --quick only fast suites and the embedded server",
        run: suites::run,
    },
    Command {
        name: "tidy",
        options: "[--cycles]",
        about: "check the project rules; --cycles only prints the cycles between files and between modules",
        run: tidy::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(reason)) => {
            eprint!("error: {reason}\n\n{}", help());
            ExitCode::from(2)
        }
        Err(Failure::Printed(code)) => ExitCode::from(code),
        Err(Failure::Ended(code, reason)) => {
            eprintln!("error: {reason}");
            ExitCode::from(code)
        }
        Err(Failure::Failed(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Failure> {
    let Some((name, options)) = args.split_first() else {
        return Err(Failure::Usage("no command given".to_owned()));
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(Failure::Usage(format!("unknown command `{name}`")));
    };
    (command.run)(&Repo::locate(), options)
}

fn help() -> String {
    let mut text = "usage: cargo xtask <command>\n\ncommands:\n".to_owned();
    for Command { name, options, about, .. } in COMMANDS {
        let call = format!("{name} {options}");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {call:<36}{about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        match dispatch(&args) {
            Err(Failure::Usage(reason)) => reason,
            Err(failure) => panic!("not a usage error: {}", failure.message()),
            Ok(()) => panic!("the command succeeded"),
        }
    }

    #[test]
    fn invalid_arguments_are_usage_errors() {
        assert_eq!(usage_error(&[]), "no command given");
        assert_eq!(usage_error(&["unknown"]), "unknown command `unknown`");
        assert!(usage_error(&["ci", "--only", "fmt,unknown"]).contains("unknown stage `unknown`"));
        assert!(usage_error(&["codegen", "--unknown"]).contains("`--unknown`"));
        assert!(usage_error(&["dist", "--unknown"]).contains("`--unknown`"));
        assert!(usage_error(&["fuzz", "--unknown"]).contains("`--unknown`"));
        assert!(usage_error(&["tidy", "--unknown"]).contains("`--unknown`"));
    }

    #[test]
    fn help_lists_every_command() {
        for command in COMMANDS {
            assert!(help().contains(&format!("\n  {} ", command.name)));
        }
    }
}
