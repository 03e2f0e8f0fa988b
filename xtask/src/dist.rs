//! `cargo xtask dist`: an archive of the program with completions and manual pages, for a release.
//!
//! The archive is reproducible: the same revision, target, compilers and linker give the same bytes, in any folder and at
//! any time. Paths of the machine are replaced in the program, and all times are that of the revision.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;
use crate::repo::{self, Repo};

/// Documents beside the program.
const DOCUMENTS: [&str; 4] = ["CHANGELOG.md", "LICENSE", "NOTICE", "README.md"];
/// Shells, and the names of their scripts in the archive.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "completions/informer.bash"),
    ("fish", "completions/informer.fish"),
    ("zsh", "completions/_informer"),
];
/// Number of starts of which the median is reported.
const STARTS: usize = 21;

/// A file of the archive.
struct Entry {
    path: String,
    content: Vec<u8>,
    mode: u32,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let target = match args[..] {
        [] => host(repo)?,
        ["--target", target] => target.to_owned(),
        _ => return Err(Failure::Usage(format!("`dist` does not accept `{}`", args.join(" ")))),
    };
    if !output(repo.program("git").args(["status", "--porcelain"]))?.is_empty() {
        eprintln!("warning: the working tree has changes, so the archive is not that of the revision");
    }
    let epoch = commit_time(repo)?;
    let program = build(repo, &target, epoch)?;
    let name = format!("informer-{}-{target}", version(&program)?);
    let archive =
        pack(&name, epoch, entries(repo, &program)?).map_err(|error| failed("pack the archive", &error))?;
    let sum = Sha256::digest(&archive).iter().fold(String::new(), |sum, byte| format!("{sum}{byte:02x}"));
    let file = repo.path("target/dist").join(format!("{name}.tar.gz"));
    fs::write(&file, &archive).map_err(|error| failed("write the archive", &error))?;
    fs::write(file.with_extension("gz.sha256"), format!("{sum}  {name}.tar.gz\n"))
        .map_err(|error| failed("write the checksum", &error))?;
    println!("{}\nsha256 {sum}\n", file.display());
    report(&program, archive.len());
    Ok(())
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot {what}: {error}"))
}

/// Returns the target of this machine.
fn host(repo: &Repo) -> Result<String, Failure> {
    let text = output(repo.program("rustc").args(["--print", "host-tuple"]))?;
    Ok(text.trim().to_owned())
}

/// Returns the time of the revision, in seconds since 1970.
fn commit_time(repo: &Repo) -> Result<u64, Failure> {
    let text = output(repo.program("git").args(["log", "-1", "--format=%ct"]))?;
    text.trim().parse().map_err(|_| Failure::Failed(format!("git printed `{}` as a time", text.trim())))
}

/// Builds the program without paths of this machine, and returns its path.
fn build(repo: &Repo, target: &str, epoch: u64) -> Result<PathBuf, Failure> {
    let folder = repo.path("target/dist");
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let sysroot = PathBuf::from(output(repo.program("rustc").args(["--print", "sysroot"]))?.trim());
    let own = [(repo.path(""), "/informer"), (repo::cargo_home(), "/cargo"), (sysroot, "/rust")];
    let flags: Vec<String> = own.iter().map(|(from, to)| remap(from, to)).collect();
    let c_flags: Vec<String> = flags
        .iter()
        .map(|flag| format!("'{}'", flag.replace("--remap-path-prefix", "-ffile-prefix-map")))
        .collect();
    let status = repo
        .cargo(&["build", "--package", "informer-cli", "--profile", "dist", "--locked", "--target", target])
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CFLAGS", c_flags.join(" "))
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        .status()
        .map_err(|error| failed("run cargo", &error))?;
    if !status.success() {
        return Err(Failure::Failed(format!("the build failed: {status}")));
    }
    let suffix = if target.contains("windows") { ".exe" } else { "" };
    let program = folder.join(target).join("dist").join(format!("informer{suffix}"));
    let bytes = fs::read(&program).map_err(|error| failed("read the program", &error))?;
    match own.iter().find(|(path, _)| contains(&bytes, path.to_string_lossy().as_bytes())) {
        Some((path, _)) => Err(Failure::Failed(format!("the program contains the path {}", path.display()))),
        None => Ok(program),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

fn version(program: &Path) -> Result<String, Failure> {
    let text = output(Command::new(program).arg("--version"))?;
    text.split_whitespace()
        .nth(1)
        .map(str::to_owned)
        .ok_or_else(|| Failure::Failed(format!("the program printed `{}` as its version", text.trim())))
}

/// Returns the files of the archive.
fn entries(repo: &Repo, program: &Path) -> Result<Vec<Entry>, Failure> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let content = fs::read(program).map_err(|error| failed("read the program", &error))?;
    let mut entries = vec![Entry { path: name, content, mode: 0o755 }];
    let mut add =
        |path: String, text: String| entries.push(Entry { path, content: text.into(), mode: 0o644 });
    for document in DOCUMENTS {
        add(document.to_owned(), repo.read(document)?);
    }
    for (shell, path) in COMPLETIONS {
        add(path.to_owned(), output(Command::new(program).args(["completions", shell]))?);
    }
    let page = output(Command::new(program).arg("man"))?;
    let commands = commands(&page);
    add("man/man1/informer.1".to_owned(), page);
    for page in commands {
        add(format!("man/man1/informer-{page}.1"), output(Command::new(program).args(["man", &page]))?);
    }
    Ok(entries)
}

/// Returns the commands that the manual page of the program refers to.
fn commands(page: &str) -> Vec<String> {
    let references =
        page.split_whitespace().filter_map(|word| word.strip_prefix("informer\\-")?.strip_suffix("(1)"));
    references.map(str::to_owned).collect()
}

/// Returns a compressed archive with one folder. Depends on nothing but the arguments.
fn pack(folder: &str, time: u64, mut entries: Vec<Entry>) -> io::Result<Vec<u8>> {
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for Entry { path, content, mode } in &entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{folder}/{path}"), &content[..])?;
    }
    archive.into_inner()?.finish()
}

/// Prints size and start time of the program, beside those of kubectl if it is on the PATH.
fn report(program: &Path, archive: usize) {
    println!("| program | size | start |\n|---|---:|---:|");
    let kubectl = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("kubectl"))
        .find(|path| path.is_file());
    let informer = Some((program.to_path_buf(), &["--version"][..]));
    let kubectl = kubectl.map(|path| (path, &["version", "--client"][..]));
    for (path, args) in informer.into_iter().chain(kubectl) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let start =
            median_start(&path, args).map_or_else(String::new, |time| format!("{:.1} ms", 1e3 * time));
        println!("| `{name} {}` | {} | {start} |", args.join(" "), megabytes(size));
    }
    println!("| archive | {} | |", megabytes(archive as u64));
}

#[allow(clippy::cast_precision_loss, reason = "sizes of files")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Returns the median time of a run of a program, in seconds.
fn median_start(program: &Path, args: &[&str]) -> Option<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let status =
            Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        times.push(started.elapsed());
        if !status.success() {
            return None;
        }
    }
    times.sort_unstable();
    times.get(STARTS / 2).map(Duration::as_secs_f64)
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    repo::output(command, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, text: &str) -> Entry {
        Entry { path: path.to_owned(), content: text.into(), mode: 0o644 }
    }

    #[test]
    fn commands_are_those_of_the_manual_page() {
        let page = ".SH SUBCOMMANDS\n.TP\ninformer\\-watch(1)\nPrints\n.TP\ninformer\\-get(1)\n";
        assert_eq!(commands(page), ["watch", "get"]);
    }

    #[test]
    fn path_in_a_program_is_found() {
        assert!(contains(b"\0/home/a/src\0", b"/home/a"));
        assert!(!contains(b"\0/informer/src\0", b"/home/a"));
    }

    #[test]
    fn archive_depends_on_its_contents_only() {
        let pack = |entries| pack("informer-1", 1_700_000_000, entries).unwrap_or_default();
        let first = pack(vec![entry("b", "2"), entry("a", "1")]);
        assert!(!first.is_empty());
        assert_eq!(first, pack(vec![entry("a", "1"), entry("b", "2")]));
        assert_ne!(first, pack(vec![entry("a", "1"), entry("b", "3")]));
    }

    #[test]
    fn archive_has_one_folder_sorted_names_and_the_time_of_the_revision() {
        let entries = vec![entry("man/man1/b.1", "2"), Entry { mode: 0o755, ..entry("a", "1") }];
        let packed = pack("informer-1", 1_700_000_000, entries).unwrap_or_default();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&packed[..]));
        let found: Vec<(String, u32, u64, u64)> = archive
            .entries()
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let (path, header) = (entry.path().ok()?.display().to_string(), entry.header());
                Some((path, header.mode().ok()?, header.mtime().ok()?, header.uid().ok()?))
            })
            .collect();
        let file = |path: &str, mode| (path.to_owned(), mode, 1_700_000_000, 0);
        assert_eq!(found, [file("informer-1/a", 0o755), file("informer-1/man/man1/b.1", 0o644)]);
    }
}
