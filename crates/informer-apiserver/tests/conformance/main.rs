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
mod differences;
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

use runner::Difference;

/// Where the embedded server differs, what the failure says, and the reason; `docs/apiserver.md` lists the same.
const DIFFERENCES: &[Difference] = &[
    differs(
        "corners::an_environment_that_names_one_twice_brings_a_warning",
        "the warning is \"\"",
        "no warnings about what is merely unwise",
    ),
    differs(
        "embedded::corners::somebody_else_without_rights_is_refused",
        " left: 200\n right: 403",
        "the plain client may do everything",
    ),
    differs(
        "differences::a_field_that_is_null_is_not_one_that_is_absent",
        "failed rule: ",
        "CEL takes them for the same",
    ),
    differs(
        "differences::a_metric_of_an_autoscaler_needs_its_source",
        " left: 201\n right: 422",
        "metrics of autoscalers are taken as they come",
    ),
    differs(
        "differences::a_policy_of_admission_is_enforced",
        "it is not so at once",
        "no admission by policies",
    ),
    differs(
        "differences::a_rule_may_have_macros_of_two_variables",
        "undeclared reference to 'all'",
        "no macros of two variables",
    ),
    differs(
        "differences::a_rule_that_may_cost_too_much_is_refused",
        " left: 201\n right: 422",
        "costs are bounded when a rule runs",
    ),
    differs(
        "differences::a_rule_with_a_wrong_pattern_is_refused",
        " left: 201\n right: 422",
        "patterns are read when a rule runs",
    ),
    differs(
        "differences::a_rule_with_an_unknown_function_is_refused",
        " left: 201\n right: 422",
        "more functions than there",
    ),
    differs(
        "differences::a_server_of_dns_is_an_address",
        " left: 201\n right: 422",
        "DNS is taken as it comes",
    ),
    differs(
        "differences::a_user_of_a_security_context_is_checked",
        " left: 201\n right: 422",
        "security contexts are taken as they come",
    ),
    differs(
        "differences::a_weight_of_an_affinity_is_checked",
        " left: 201\n right: 422",
        "affinity is taken as it comes",
    ),
    differs(
        "differences::an_autoscaler_of_version_1_tells_of_other_metrics",
        "the metrics are null",
        "version 1 knows the CPU target only",
    ),
    differs(
        "differences::functions_on_lists_know_sets",
        "failed rule: ",
        "only operators of CEL know sets and maps",
    ),
    differs(
        "differences::raw_data_keep_their_bytes_in_protobuf",
        "the bytes are others",
        "raw data are compact JSON",
    ),
    differs("differences::the_sum_of_no_numbers_is_of_their_type", "failed rule: ", "it is the integer 0"),
    differs("differences::very_many_digits_are_not_written", "failed rule: ", "all are written"),
    differs(
        "discovery::an_openapi_document_describes_its_fields",
        "[\"description\"].is_string()",
        "documents have no descriptions of built-in types",
    ),
    differs(
        "paging::pages_of_one_namespace_named_by_a_field_do_not_go_on",
        "left: (\"a b c\", \"d e\")",
        "ours do: a client loses nothing",
    ),
    differs(
        "subresources::a_limit_range_completes_pods",
        "it is not so at once",
        "no admission by limit ranges",
    ),
    differs(
        "subresources::a_quota_refuses_what_goes_beyond",
        "it is not so at once",
        "no admission by quotas",
    ),
    differs(
        "subresources::a_service_account_gets_a_token",
        " left: 404\n right: 201",
        "no tokens of service accounts",
    ),
];

const fn differs(statement: &'static str, says: &'static str, why: &'static str) -> Difference {
    Difference { statement, says, why }
}

#[tokio::main]
async fn main() -> ExitCode {
    let statements = [
        apply::ALL,
        concurrent::ALL,
        corners::ALL,
        create::ALL,
        definitions::ALL,
        delete::ALL,
        differences::ALL,
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
    for Difference { statement: listed, .. } in DIFFERENCES {
        let name = listed.strip_prefix("embedded::").or(listed.strip_prefix("https::")).unwrap_or(listed);
        assert!(statements.iter().any(|statement| statement.name == name), "there is no statement {name}");
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in docs/apiserver.md");
    }
}
