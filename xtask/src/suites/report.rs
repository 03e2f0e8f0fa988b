//! The results of the suites: read from reports, compared with the known failures, printed as a table.
//!
//! Pure: texts in, texts out.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// A server that suites run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Embedded,
    ControlPlane,
}

impl Server {
    /// Returns the name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded server",
            Self::ControlPlane => "kube-apiserver",
        }
    }

    /// Returns the name in file names.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::ControlPlane => "control-plane",
        }
    }
}

/// A test that is expected to fail.
pub(super) struct Known {
    pub(super) suite: &'static str,
    pub(super) servers: &'static [Server],
    /// Name of the test.
    pub(super) test: &'static str,
    pub(super) reason: &'static str,
}

/// The result of one suite on one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) passed: usize,
    /// Number of tests that did not run.
    pub(super) skipped: usize,
    /// Names of the failed tests, in the order of execution.
    pub(super) failed: Vec<String>,
}

/// The results of one suite.
pub(super) struct Row {
    pub(super) suite: &'static str,
    pub(super) reports: Vec<(Server, Report)>,
}

impl Report {
    /// Reads a JSON report of Ginkgo.
    pub(super) fn from_ginkgo(text: &str) -> Result<Self, String> {
        let suites: Value = serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))?;
        let suite = &suites[0];
        let specs = suite["SpecReports"].as_array().ok_or("the report contains no specs")?;
        let mut report = Self::default();
        for spec in specs {
            // Set-up and clean-up of the suite are reported like specs.
            let is_spec = spec["LeafNodeType"] == "It";
            match spec["State"].as_str() {
                Some("passed") => report.passed += usize::from(is_spec),
                Some("pending" | "skipped") => report.skipped += usize::from(is_spec),
                _ => report.failed.push(ginkgo_name(spec)),
            }
        }
        if report.failed.is_empty() && suite["SuiteSucceeded"] != true {
            report.failed.push(format!("the suite: {}", suite["SpecialSuiteFailureReasons"]));
        }
        Ok(report)
    }

    /// Reads the output of Rust's test harness.
    pub(super) fn from_libtest(text: &str) -> Result<Self, String> {
        let mut report = Self::default();
        for (name, outcome) in text.lines().filter_map(libtest_line) {
            match outcome {
                "ok" => report.passed += 1,
                outcome if outcome.starts_with("ignored") => report.skipped += 1,
                _ => report.failed.push(name.to_owned()),
            }
        }
        let is_complete = text.lines().any(|line| line.starts_with("test result: "));
        if is_complete { Ok(report) } else { Err("the output has no result".to_owned()) }
    }
}

/// Returns the name and the outcome in a line of Rust's test harness, such as `test a::b ... ok`.
fn libtest_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// Returns the name of a spec: the texts of its containers and its own. Nodes without a text have a type.
fn ginkgo_name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().map_or(&[][..], Vec::as_slice);
    let texts = containers.iter().chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    let name: Vec<&str> = texts.flat_map(str::split_whitespace).collect();
    if name.is_empty() {
        format!("[{}]", spec["LeafNodeType"].as_str().unwrap_or("unnamed"))
    } else {
        name.join(" ")
    }
}

/// Returns the table of all results, followed by the names of the failed tests.
pub(super) fn render(rows: &[Row], known: &[Known]) -> String {
    let mut text =
        format!("\n{:<16}{:<18}{:>7}{:>7}{:>8}\n", "suite", "server", "passed", "failed", "skipped");
    let mut failures = String::new();
    for Row { suite, reports } in rows {
        for (server, report) in reports {
            let Report { passed, skipped, failed } = report;
            // Writing to a String cannot fail.
            let _ =
                writeln!(text, "{suite:<16}{:<18}{passed:>7}{:>7}{skipped:>8}", server.name(), failed.len());
            for name in failed {
                let reason = find(known, suite, *server, name).map_or("", |known| known.reason);
                let reason = if reason.is_empty() { String::new() } else { format!(" (known: {reason})") };
                let _ = writeln!(failures, "failed: {suite} on {}: {name}{reason}", server.name());
            }
        }
    }
    text.push_str(&failures);
    text
}

fn find<'a>(known: &'a [Known], suite: &str, server: Server, test: &str) -> Option<&'a Known> {
    known.iter().find(|known| known.suite == suite && known.test == test && known.servers.contains(&server))
}

/// Returns what differs from the known failures: other tests that failed, and known ones that did not.
pub(super) fn problems(rows: &[Row], known: &[Known]) -> Vec<String> {
    let mut problems = Vec::new();
    for Row { suite, reports } in rows {
        for (server, report) in reports {
            let failed: BTreeSet<&str> = report.failed.iter().map(String::as_str).collect();
            let unexpected = failed.iter().filter(|test| find(known, suite, *server, test).is_none()).count();
            if unexpected > 0 {
                problems.push(format!("{suite} on {}: {unexpected} unexpected failures", server.name()));
            }
            let expected =
                known.iter().filter(|known| known.suite == *suite && known.servers.contains(server));
            for known in expected.filter(|known| !failed.contains(known.test)) {
                problems.push(format!(
                    "{suite} on {}: known failure did not fail: {}",
                    server.name(),
                    known.test
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[Known {
        suite: "client",
        servers: &[Server::Embedded],
        test: "Client Logs should be read",
        reason: "no kubelet",
    }];

    fn report(passed: usize, failed: &[&str]) -> Report {
        Report { passed, skipped: 1, failed: failed.iter().map(ToString::to_string).collect() }
    }

    fn rows(failed: &[&str]) -> Vec<Row> {
        let reports = vec![(Server::Embedded, report(3, failed)), (Server::ControlPlane, report(40, &[]))];
        vec![Row { suite: "client", reports }]
    }

    fn ginkgo(specs: &str, succeeded: bool) -> Result<Report, String> {
        Report::from_ginkgo(&format!(
            r#"[{{"SuiteSucceeded": {succeeded}, "SpecialSuiteFailureReasons": null, "SpecReports": [{specs}]}}]"#
        ))
    }

    #[test]
    fn ginkgo_report_counts_specs_and_names_failures() {
        let spec = |kind: &str, state: &str| {
            format!(
                r#"{{"LeafNodeType": "{kind}", "State": "{state}", "ContainerHierarchyTexts": ["Cache ", "as a Reader"], "LeafNodeText": "lists"}}"#
            )
        };
        let setup = |state: &str| {
            format!(
                r#"{{"LeafNodeType": "BeforeSuite", "State": "{state}", "ContainerHierarchyTexts": null, "LeafNodeText": ""}}"#
            )
        };
        let specs =
            ["passed", "passed", "pending", "skipped", "failed", "panicked"].map(|state| spec("It", state));
        let read = ginkgo(&format!("{},{}", setup("passed"), specs.join(",")), false).unwrap();
        let name = "Cache as a Reader lists".to_owned();
        assert_eq!(read, Report { passed: 2, skipped: 2, failed: vec![name.clone(), name] });
        assert_eq!(ginkgo(&setup("failed"), false).unwrap().failed, ["[BeforeSuite]"]);
        assert_eq!(ginkgo(&setup("passed"), false).unwrap().failed, ["the suite: null"]);
        assert_eq!(ginkgo(&setup("passed"), true).unwrap(), Report::default());
        assert!(Report::from_ginkgo("[]").is_err() && Report::from_ginkgo("").is_err());
    }

    #[test]
    fn libtest_output_counts_tests_and_names_failures() {
        let text = "\nrunning 3 tests\ntest api::lists ... ok\ntest api::gets ... FAILED\n\nfailures:\n    api::gets\n\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out\n";
        let expected = Report { passed: 1, skipped: 0, failed: vec!["api::gets".to_owned()] };
        assert_eq!(Report::from_libtest(text), Ok(expected));
        assert!(Report::from_libtest("test api::lists ... ok\n").is_err(), "the program crashed");
    }

    #[test]
    fn table_shows_both_servers_and_failures() {
        let expected = "
suite           server             passed failed skipped
client          embedded server         3      2       1
client          kube-apiserver         40      0       1
failed: client on embedded server: Client Logs should be read (known: no kubelet)
failed: client on embedded server: other
";
        assert_eq!(render(&rows(&["Client Logs should be read", "other"]), KNOWN), expected);
    }

    #[test]
    fn unexpected_failures_and_fixed_ones_are_problems() {
        assert!(problems(&rows(&["Client Logs should be read"]), KNOWN).is_empty());
        assert_eq!(
            problems(&rows(&["other"]), KNOWN),
            [
                "client on embedded server: 1 unexpected failures",
                "client on embedded server: known failure did not fail: Client Logs should be read"
            ]
        );
    }
}
