//! `cargo xtask bench`: compares informer with client-go, kube-rs and the baseline, in one run and one table.
//!
//! Each run of a scenario is a new process. A round runs each client once, starting with another client in
//! each round; rounds are repeated, so that other load on the machine affects all clients equally.
//! `bench/peers/README.md` describes the programs and the protocol, the page "Benchmarks" of the book the method
//! and its limits.

mod data;
mod failure;
mod plan;
mod plot;
mod program;
mod proxy;
mod replay;
mod repo;
mod report;
mod scenario;
mod topics;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

use data::Data;
use failure::Failure;
use plan::Plan;
use program::{Client, Programs};
use repo::Repo;
use report::Rows;
use scenario::{RunContext, Scenario, short};

const USAGE: &str = "usage: cargo xtask bench [--quick] [--times N] [--control-plane KUBECONFIG] [--name NAME] [FILTER]\n       \
     cargo xtask bench --tables";

/// The result file of a full run.
const LATEST: &str = "bench/results/latest.json";

/// The command line options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    quick: bool,
    /// Number of rounds of each scenario, instead of the planned number.
    times: Option<usize>,
    /// Name of the result file. Defaults to `latest`, or to `quick` with `--quick`.
    name: Option<String>,
    /// Path of the kubeconfig of a control plane.
    control_plane: Option<String>,
    /// Text that the names of the scenarios must contain.
    filter: Option<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&Repo::locate(), &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(reason)) => {
            eprintln!("error: {reason}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    if args == ["--tables"] {
        return write_documents(repo, LATEST);
    }
    let options = Options::parse(args)?;
    let plan = Plan::new(&options)?;
    let programs = Programs::build(repo)?;
    let folder = Folder::new()?;
    let pods = plan.prepared_pods();
    eprintln!("generating {pods} pods");
    let data = Arc::new(Data::generate(pods, programs.client_go.as_deref(), &folder.0)?);
    let mut rows = Rows::default();
    let mut failures = 0;
    for (scenario, times) in &plan.0 {
        if let Some(pods) = scenario.control_plane_pods()
            && let Err(failure) = fill(&options, &programs, pods, &folder.0)
        {
            eprintln!("error: {}: {}", scenario.name(), failure.message());
            failures += 1;
            continue;
        }
        failures += measure(scenario, *times, &options, &programs, &data, &folder.0, &mut rows);
    }
    if rows.is_empty() {
        return Err(Failure::Failed("nothing was measured".to_owned()));
    }
    let (small, large) = if options.quick { (1000, 10_000) } else { (1000, 50_000) };
    rows.add_growth((small, &short(small)), (large, &short(large)));
    rows.add_comparisons();
    publish(repo, &options, &rows, is_full(&options, programs.client_go.is_some(), failures))?;
    if failures == 0 { Ok(()) } else { Err(Failure::Failed(format!("{failures} runs failed, see above"))) }
}

/// Runs all rounds of a scenario; returns the number of failed runs.
fn measure(
    scenario: &Scenario,
    times: usize,
    options: &Options,
    programs: &Programs,
    data: &Arc<Data>,
    folder: &Path,
    rows: &mut Rows,
) -> usize {
    let mut failures = 0;
    for round in 1..=times {
        for client in rotate_clients(scenario.clients(), round) {
            let Some(program) = programs.path(client) else { continue };
            eprintln!("{}, round {round} of {times}: {}", scenario.name(), client.name());
            let control_plane = options.control_plane.as_deref().map(Path::new);
            match scenario.run(&RunContext { data, program: &program, client, folder, control_plane }) {
                Ok(figures) => figures.into_iter().for_each(|figure| rows.add(client, figure)),
                Err(failure) => {
                    eprintln!("error: {}: {}: {}", scenario.name(), client.name(), failure.message());
                    failures += 1;
                }
            }
        }
    }
    failures
}

/// Returns the clients of a round in their order; the first client of a round is the last of the next. Rounds
/// are counted from one.
fn rotate_clients(clients: &[Client], round: usize) -> Vec<Client> {
    let mut clients = clients.to_vec();
    let first = (round - 1) % clients.len().max(1);
    clients.rotate_left(first);
    clients
}

/// Creates pods in the control plane until it contains this many.
fn fill(options: &Options, programs: &Programs, pods: usize, folder: &Path) -> Result<(), Failure> {
    let (Some(kubeconfig), Some(program)) = (&options.control_plane, &programs.client_go) else {
        return Err(Failure::Failed("filling the control plane needs Go".to_owned()));
    };
    eprintln!("filling the control plane up to {pods} pods");
    let lines = folder.join("fill.json");
    data::write_lines(pods, &lines)?;
    let filled = Command::new(program).arg("fill").arg(kubeconfig).arg(&lines).status();
    match filled {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::Failed("filling the control plane failed, see above".to_owned())),
    }
}

/// Returns whether a run is complete enough for the table in the README: all scenarios and rounds, with every
/// client and a control plane, without failures.
fn is_full(options: &Options, client_go: bool, failures: usize) -> bool {
    let Options { quick, times, name, control_plane, filter } = options;
    !quick
        && times.is_none()
        && name.is_none()
        && control_plane.is_some()
        && filter.is_none()
        && client_go
        && failures == 0
}

/// Prints the table and writes the result file; after a full run, also the tables and plots of the documents.
fn publish(repo: &Repo, options: &Options, rows: &Rows, full: bool) -> Result<(), Failure> {
    let machine = machine();
    println!("{}", rows.table(&machine));
    let usual = if options.quick { "quick" } else { "latest" };
    let name = options.name.as_deref().unwrap_or(usual);
    let path = format!("bench/results/{name}.json");
    repo.write(&path, &rows.json(&machine, options.quick))?;
    eprintln!("written: {path}");
    if full { write_documents(repo, &path) } else { Ok(()) }
}

/// Writes the tables and the plots of a result file.
fn write_documents(repo: &Repo, results: &str) -> Result<(), Failure> {
    for (path, text) in documents(repo, results)? {
        repo.write(&path, &text)?;
        eprintln!("written: {path}");
    }
    Ok(())
}

/// Returns the paths and the texts of the documents with tables and of the plots, updated from a result file.
fn documents(repo: &Repo, results: &str) -> Result<Vec<(String, String)>, Failure> {
    let (rows, machine) = Rows::parse(&repo.read(results)?)
        .ok_or_else(|| Failure::Failed(format!("{results}: not a result file of this program")))?;
    let tables = [
        ("README.md", rows.summary(&machine)),
        ("docs/book/src/reference/benchmarks.md", rows.table(&machine)),
    ];
    let mut documents = topics::files(&rows);
    for (path, table) in tables {
        let page = report::replace_table(&repo.read(path)?, &table)
            .ok_or_else(|| Failure::Failed(format!("{path}: the markers around the table are missing")))?;
        documents.push((path.to_owned(), page));
    }
    Ok(documents)
}

/// Cores and memory, nothing else.
fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes: Option<u64> = total.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok());
    let memory =
        kilobytes.map_or_else(String::new, |kilobytes| format!(", {} GiB", kilobytes.div_ceil(1 << 20)));
    format!("{cores} cores{memory}")
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                let missing = || Failure::Usage(format!("`{arg}` needs a value"));
                args.next().cloned().ok_or_else(missing)
            };
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--name" => options.name = Some(value()?),
                "--times" => {
                    let count = value()?.parse().ok().filter(|count| *count > 0);
                    options.times = Some(
                        count.ok_or_else(|| Failure::Usage("`--times` needs a number above 0".to_owned()))?,
                    );
                }
                "--control-plane" => options.control_plane = Some(value()?),
                other if other.starts_with('-') || options.filter.is_some() => {
                    return Err(Failure::Usage(format!("`bench` does not accept `{other}`")));
                }
                filter => options.filter = Some(filter.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Prefix of the name of a temporary folder; the process id follows.
const FOLDER_PREFIX: &str = "informer-bench-";

/// A temporary folder for the files of a run, removed at its end, or by the next run if it was interrupted.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let all = std::env::temp_dir();
        remove_stale_folders(&all);
        let path = all.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| Failure::Failed(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the next run removes the folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of ended processes. Does nothing without `/proc`.
fn remove_stale_folders(all: &Path) {
    let alive = |process: &str| Path::new("/proc").join(process).exists();
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX));
        if process.is_some_and(|process| process.parse::<u32>().is_ok() && alive("self") && !alive(process)) {
            // The folder may belong to another user.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Options::parse(&args).map_err(Failure::message)
    }

    #[test]
    fn options_are_parsed() {
        let expected = Options { quick: true, filter: Some("sync".to_owned()), ..Options::default() };
        assert_eq!(parse(&["--quick", "sync"]).unwrap(), expected);
        assert_eq!(parse(&["--quik"]).unwrap_err(), "`bench` does not accept `--quik`");
        assert_eq!(parse(&["a", "b"]).unwrap_err(), "`bench` does not accept `b`");
        assert_eq!(parse(&["--times", "0"]).unwrap_err(), "`--times` needs a number above 0");
        assert_eq!(parse(&["--control-plane"]).unwrap_err(), "`--control-plane` needs a value");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn folders_of_ended_processes_are_removed() {
        let all = std::env::temp_dir().join(format!("informer-bench-harness-stale-{}", std::process::id()));
        let [own, ended, other] = [std::process::id().to_string(), u32::MAX.to_string(), "x".to_owned()]
            .map(|process| all.join(format!("{FOLDER_PREFIX}{process}")));
        for folder in [&own, &ended, &other] {
            fs::create_dir_all(folder).unwrap();
        }
        remove_stale_folders(&all);
        assert_eq!([own, ended, other].map(|folder| folder.exists()), [true, false, true]);
        fs::remove_dir_all(all).unwrap();
    }

    #[test]
    fn each_round_starts_with_another_client() {
        let clients = [Client::Informer, Client::Go, Client::KubeRs];
        assert_eq!(rotate_clients(&clients, 1), clients);
        assert_eq!(rotate_clients(&clients, 3), [Client::KubeRs, Client::Informer, Client::Go]);
        assert_eq!(rotate_clients(&clients, 4), clients);
    }

    #[test]
    fn tables_and_plots_are_those_of_the_result_file() {
        let repo = Repo::locate();
        let (rows, _) = Rows::parse(&repo.read(LATEST).map_err(Failure::message).unwrap()).unwrap();
        for name in report::SUMMARY {
            assert!(rows.summary("").contains(&format!("\n| {name} | ")), "no row is called {name}");
        }
        for (path, expected) in documents(&repo, LATEST).map_err(Failure::message).unwrap() {
            let current = repo.read(&path).unwrap_or_default();
            assert!(expected == current, "{path} is out of date: run `cargo xtask bench --tables`");
        }
    }

    #[test]
    fn only_a_full_run_is_for_the_readme() {
        let full = parse(&["--control-plane", "kubeconfig"]).unwrap();
        assert!(is_full(&full, true, 0));
        assert!(!is_full(&full, false, 0) && !is_full(&full, true, 1));
        for args in [&["--quick"][..], &["--times", "1"], &["sync"]] {
            assert!(
                !is_full(&parse(&[&["--control-plane", "kubeconfig"], args].concat()).unwrap(), true, 0),
                "{args:?}"
            );
        }
        assert!(!is_full(&Options::default(), true, 0), "no control plane is given");
    }
}
