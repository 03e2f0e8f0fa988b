//! Replays every recorded request to kube-apiserver: status, headers, whole bodies and watch frames must match.
//!
//! `alike` maps what differs between two runs of one server (versions, uids, times, generated names, addresses), so
//! relations still count: a version that two recorded responses share must be shared here too. Known differences are
//! listed in `exceptions.txt`, each with a reason; the test fails if a listed step matches or an unlisted one
//! differs.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod alike;
mod interludes;
mod run;
mod users;
mod wire;

use std::collections::BTreeMap;

/// The scenarios, in the order in which they were recorded.
const FILES: &[&str] = &[
    "discovery",
    "auth",
    "auth_no_anonymous",
    "crud",
    "patch",
    "delete",
    "list",
    "watch",
    "namespaces",
    "crd",
    "leases_events",
    "gzip",
    "compaction",
];

/// Number of exceptions. It may only decrease.
const EXCEPTIONS: usize = 6;

/// Reasons by step, for one file or for all.
fn exceptions(file: Option<&str>) -> BTreeMap<String, String> {
    let lines = include_str!("exceptions.txt")
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mut found = BTreeMap::new();
    for line in lines {
        let (step, reason) = line.split_once(char::is_whitespace).expect("a step and a reason");
        assert!(!reason.trim().is_empty(), "{step} has no reason");
        if file.is_none_or(|file| step.split('/').next() == Some(file)) {
            let twice = found.insert(step.to_owned(), reason.trim().to_owned());
            assert!(twice.is_none(), "{step} is listed twice");
        }
    }
    found
}

/// Replays a scenario and compares its differences with the list.
async fn check(file: &str) {
    let outcome = run::replay(file).await;
    let listed = exceptions(Some(file));
    let mut wrong = Vec::new();
    for (step, problems) in &outcome.steps {
        let name = format!("{file}/{step}");
        match (problems.is_empty(), listed.contains_key(&name)) {
            (false, false) => wrong.push(format!("{name}\n{}", problems.join("\n"))),
            (true, true) => wrong.push(format!("{name} is listed but matches: remove it from the list")),
            _ => {}
        }
    }
    for name in listed.keys() {
        let known = outcome.steps.iter().any(|(step, _)| format!("{file}/{step}") == *name);
        assert!(known, "{name} is listed but is not a step");
    }
    let agree = outcome.steps.iter().filter(|(_, problems)| problems.is_empty()).count();
    println!("{file}: {agree} of {} steps match", outcome.steps.len());
    assert!(wrong.is_empty(), "{} of {} steps:\n\n{}", wrong.len(), outcome.steps.len(), wrong.join("\n\n"));
}

#[test]
fn nine_of_ten_steps_match_and_all_that_informers_rely_on() {
    let all = exceptions(None);
    assert_eq!(all.len(), EXCEPTIONS, "the number of exceptions may only decrease; update `EXCEPTIONS`");
    let steps: usize = FILES.iter().map(|file| run::scenario(file).len()).sum();
    assert!(steps >= 1_000, "the recordings have {steps} steps");
    assert!(all.len() * 10 <= steps, "{} exceptions in {steps} steps", all.len());
    let relied_on = ["watch/", "list/", "delete/", "compaction/"];
    let excepted = all.keys().find(|step| relied_on.iter().any(|file| step.starts_with(file)));
    assert_eq!(excepted, None, "informers rely on these steps");
}

macro_rules! scenarios {
    ($($name:ident: $file:literal;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            check($file).await;
        }
    )*};
}

scenarios! {
    discovery: "discovery";
    users: "auth";
    users_without_anonymous: "auth_no_anonymous";
    writes: "crud";
    patches: "patch";
    deletions: "delete";
    lists: "list";
    watches: "watch";
    the_life_of_a_namespace: "namespaces";
    custom_resources: "crd";
    leases_and_events: "leases_events";
    compression: "gzip";
    compaction: "compaction";
}
