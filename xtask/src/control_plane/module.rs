//! The Go module in `xtask/control-plane`: its versions of Kubernetes and Go, and the arguments of its build.
//!
//! Its `go.mod` is the only file with the Kubernetes version. This file only parses and renders texts; it
//! starts no process.

use std::env::consts::{ARCH, OS};

use super::failed;
use crate::failure::Failure;
use crate::repo::Repo;

/// The folder of the module in the repository.
pub(super) const FOLDER: &str = "xtask/control-plane";

/// Its main packages; each has a folder of the same name.
pub(super) const PROGRAMS: &[&str] = &["etcd", "keygen", "kube-apiserver", "kubectl"];

/// The versions in `go.mod`, and a name that identifies the sources.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// Version of Kubernetes, such as `1.36.4`.
    pub(super) kubernetes: String,
    /// Minimum version of Go, such as `1.26.0`.
    pub(super) go: String,
    /// Kubernetes version and hash of the sources: equal builds have equal names.
    pub(super) build_name: String,
}

impl Module {
    pub(super) fn read(repo: &Repo) -> Result<Self, Failure> {
        let mut names = vec!["go.mod".to_owned(), "go.sum".to_owned()];
        names.extend(PROGRAMS.iter().map(|program| format!("{program}/main.go")));
        let mut sources = Vec::new();
        for name in names {
            let text = repo.read(&format!("{FOLDER}/{name}"))?;
            sources.push((name, text));
        }
        Self::of(&sources).map_err(|reason| failed(&format!("{FOLDER}/go.mod"), &reason))
    }

    /// Creates it from the sources, by name; `go.mod` is the first.
    fn of(sources: &[(String, String)]) -> Result<Self, String> {
        let go_mod = sources.first().map_or("", |(_, text)| text.as_str());
        let kubernetes =
            version_of(go_mod, "k8s.io/kubernetes v").ok_or("no version of k8s.io/kubernetes")?;
        let go = version_of(go_mod, "go ").ok_or("no version of Go")?;
        if numbers(kubernetes).len() != 3 {
            return Err(format!("`{kubernetes}` is not a release of Kubernetes"));
        }
        // Includes the platform, because machines may share a home folder.
        let mut parts = vec![OS, ARCH];
        parts.extend(sources.iter().flat_map(|(name, text)| [name.as_str(), text.as_str()]));
        let build_name = format!("{kubernetes}-{:016x}", hash(&parts));
        Ok(Self { kubernetes: kubernetes.to_owned(), go: go.to_owned(), build_name })
    }

    /// Returns whether Go of the version `found`, such as `go1.26.8`, can build the module.
    pub(super) fn is_built_by(&self, found: &str) -> bool {
        found.strip_prefix("go").is_some_and(|found| numbers(found) >= numbers(&self.go))
    }

    /// Returns the arguments of `go` that build programs into a folder.
    pub(super) fn build_args(&self, programs: &[&str], into: &str) -> Vec<String> {
        let flags = ["build", "-v", "-trimpath", "-ldflags", &self.link_flags(), "-o", into];
        let packages = programs.iter().map(|program| format!("./{program}"));
        flags.map(ToOwned::to_owned).into_iter().chain(packages).collect()
    }

    /// Returns linker flags that set the version; without them, the server would report `v0.0.0-master`.
    fn link_flags(&self) -> String {
        let mut numbers = self.kubernetes.split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let mut flags = "-s -w".to_owned();
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            let variables = [
                format!("gitVersion=v{}", self.kubernetes),
                format!("gitMajor={major}"),
                format!("gitMinor={minor}"),
                "gitCommit=".to_owned(),
            ];
            flags.extend(variables.iter().map(|variable| format!(" -X {package}.{variable}")));
        }
        flags
    }
}

/// Returns the text after `key` in a line of a `go.mod`, inside or outside of a `require` block. Lines with
/// `=>` are replacements.
fn version_of<'a>(go_mod: &'a str, key: &str) -> Option<&'a str> {
    go_mod
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default().trim())
        .filter(|line| !line.contains("=>"))
        .find_map(|line| line.strip_prefix("require ").unwrap_or(line).trim_start().strip_prefix(key))
        .map(str::trim)
}

/// Parses a version for comparisons; parsing stops at other text, so that `1.27rc1` equals `1.27`.
fn numbers(version: &str) -> Vec<u64> {
    let digits =
        |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().ok();
    version.split('.').map_while(digits).collect()
}

/// Returns the FNV-1a hash of the parts and their lengths. Unlike std's hasher, it is equal in every release
/// of Rust.
fn hash(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for part in parts {
        feed(&part.len().to_le_bytes());
        feed(part.as_bytes());
    }
    hash
}

/// Returns a short name that identifies a text, such as a path.
pub(super) fn short_name(text: &str) -> String {
    format!("{:016x}", hash(&[text]))
}

/// Returns whether an error message of Go reports that a module could not be downloaded. A wrong version or
/// checksum is another error.
pub(crate) fn is_network_error(message: &str) -> bool {
    // Go's HTTP client prefixes the error of a request without a response with this text.
    message.contains(": Get \"http") || message.contains("lookup disabled by GOPROXY=off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(go_mod: &str) -> Result<Module, String> {
        Module::of(&[("go.mod".to_owned(), go_mod.to_owned())])
    }

    const SMALL: &str = "module a\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.4\n";

    #[test]
    fn versions_are_parsed_from_go_mod() {
        let small = module(SMALL).unwrap();
        assert_eq!((small.kubernetes.as_str(), small.go.as_str()), ("1.36.4", "1.26.0"));
        assert!(small.build_name.starts_with("1.36.4-"));
        let block = "// k8s.io/kubernetes v9.9.9\ngo 1.26.0\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/kubernetes v1.37.0 // new\n)\n";
        assert_eq!(module(block).unwrap().kubernetes, "1.37.0");
    }

    #[test]
    fn missing_versions_are_errors() {
        assert_eq!(module("go 1.26.0\n").unwrap_err(), "no version of k8s.io/kubernetes");
        assert_eq!(module("require k8s.io/kubernetes v1.36.4\n").unwrap_err(), "no version of Go");
        let replaced = "go 1.26.0\nreplace k8s.io/kubernetes v1.36.4 => ../kubernetes\n";
        assert_eq!(module(replaced).unwrap_err(), "no version of k8s.io/kubernetes");
        let odd = "go 1.26.0\nrequire k8s.io/kubernetes v1.x\n";
        assert_eq!(module(odd).unwrap_err(), "`1.x` is not a release of Kubernetes");
    }

    #[test]
    fn different_sources_have_different_build_names() {
        let name = |main: &str| {
            let sources = [("go.mod", SMALL), ("etcd/main.go", main)];
            Module::of(&sources.map(|(name, text)| (name.to_owned(), text.to_owned()))).unwrap().build_name
        };
        assert_eq!(name("package main"), name("package main"));
        assert_ne!(name("package main"), name("package other"));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }

    #[test]
    fn go_versions_are_compared() {
        let small = module(SMALL).unwrap();
        for (found, expected) in [
            ("go1.26.0", true),
            ("go1.26.8", true),
            ("go1.27rc1", true),
            ("go1.100", true),
            ("go1.25.9", false),
            ("go1.26", false),
            ("devel", false),
            ("", false),
        ] {
            assert_eq!(small.is_built_by(found), expected, "{found}");
        }
    }

    #[test]
    fn network_errors_are_distinguished_from_other_errors() {
        for (message, expected) in [
            (
                "a@v1: Get \"https://proxy.golang.org/a/@v/v1.zip\": dial tcp: lookup proxy.golang.org: no such host",
                true,
            ),
            ("main.go:3:8: a@v1: module lookup disabled by GOPROXY=off", true),
            ("a@v1: reading https://proxy.golang.org/a/@v/v1.info: 404 Not Found", false),
            ("verifying a@v1: checksum mismatch", false),
            ("main.go:3:8: undefined: a", false),
        ] {
            assert_eq!(is_network_error(message), expected, "{message}");
        }
    }

    #[test]
    fn both_version_packages_are_set() {
        let args = module(SMALL).unwrap().build_args(&["kubectl"], "out/");
        assert_eq!(args[5..], ["-o", "out/", "./kubectl"]);
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            assert!(args[4].contains(&format!(" -X {package}.gitVersion=v1.36.4 -X {package}.gitMajor=1 ")));
        }
    }

    /// The staging modules of Kubernetes are replaced one by one; a forgotten one would still build, but with
    /// another version.
    #[test]
    fn modules_of_kubernetes_have_one_release() {
        let repo = Repo::locate();
        let Ok(module) = Module::read(&repo) else { panic!("cannot read {FOLDER}") };
        let go_mod = repo.read(&format!("{FOLDER}/go.mod")).unwrap_or_default();
        let staged = format!("v0.{}", module.kubernetes.split_once('.').unwrap().1);
        let replaced: Vec<&str> =
            go_mod.lines().filter_map(|line| Some(line.split_once("=>")?.1.trim())).collect();
        assert!(replaced.len() > 25, "{replaced:?}");
        for line in replaced {
            assert_eq!(line.split_once(' ').map(|(_, version)| version), Some(staged.as_str()), "{line}");
        }
    }

    #[test]
    fn every_program_has_a_folder() {
        let folders = Repo::locate().folders(FOLDER).unwrap_or_default();
        assert_eq!(folders.iter().map(String::as_str).collect::<Vec<_>>(), PROGRAMS);
    }
}
