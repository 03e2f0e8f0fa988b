//! One suite of statements about a Kubernetes API server, held against three arms: the embedded server in process, the same
//! over HTTPS, and a real kube-apiserver where `INFORMER_REAL_KUBECONFIG` names one (`cargo xtask real test`).
//!
//! Each statement is one sentence that a client can check, and knows nothing of the arm it runs on. Statements that hold on a
//! real server and not on ours are in [`DIFFERENCES`]; they must fail here and hold there. No statement needs a controller,
//! none minds one, and none looks at absolute versions.

#![allow(clippy::unwrap_used, reason = "a statement says what is wrong by panicking")]

mod apply;
mod arm;
mod concurrent;
mod corners;
mod create;
mod definitions;
mod delete;
mod discovery;
mod errors;
mod etcd;
mod expiry;
mod forms;
mod gadgets;
mod kinds;
mod list;
mod paging;
mod patch;
mod runner;
mod selectors;
mod subresources;
mod update;
mod watch;
mod watch_list;
mod watch_stream;

use std::process::ExitCode;

/// Where the embedded server differs, with the reason; `docs/apiserver.md` lists the same. A name with the arm in front of it is for that
/// arm alone.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "corners::an_environment_that_names_one_twice_brings_a_warning",
        "no warnings about what is merely unwise",
    ),
    (
        "discovery::an_openapi_document_describes_its_fields",
        "documents have no descriptions of built-in types",
    ),
    ("embedded::corners::somebody_else_without_rights_is_refused", "the plain client may do everything"),
    ("paging::pages_of_one_namespace_named_by_a_field_do_not_go_on", "ours do: a client loses nothing"),
    ("subresources::a_limit_range_completes_pods", "no admission by limit ranges"),
    ("subresources::a_quota_refuses_what_goes_beyond", "no admission by quotas"),
    ("subresources::a_service_account_gets_a_token", "no tokens of service accounts"),
];

#[tokio::main]
async fn main() -> ExitCode {
    let statements = [
        apply::ALL,
        concurrent::ALL,
        corners::ALL,
        create::ALL,
        definitions::ALL,
        delete::ALL,
        discovery::ALL,
        errors::ALL,
        expiry::ALL,
        forms::ALL,
        gadgets::ALL,
        kinds::ALL,
        list::ALL,
        paging::ALL,
        patch::ALL,
        selectors::ALL,
        subresources::ALL,
        update::ALL,
        watch::ALL,
        watch_list::ALL,
    ];
    let statements = statements.concat();
    check_list(&statements);
    runner::run(arm::Arms::open().await, &statements, DIFFERENCES).await
}

/// What is listed must be there, and where people read of it.
fn check_list(statements: &[runner::Statement<arm::Arm>]) {
    let page = include_str!("../../../../docs/apiserver.md");
    for (listed, _) in DIFFERENCES {
        let name = listed.strip_prefix("embedded::").or(listed.strip_prefix("https::")).unwrap_or(listed);
        assert!(statements.iter().any(|statement| statement.name == name), "there is no statement {name}");
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in docs/apiserver.md");
    }
}
