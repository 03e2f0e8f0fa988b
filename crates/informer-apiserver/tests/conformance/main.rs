//! Conformance suite: statements about a Kubernetes API server, run on three targets: the embedded server in
//! process, the same over HTTPS, and kube-apiserver if `INFORMER_CONTROL_PLANE_KUBECONFIG` names one (`cargo xtask control-plane
//! test`).
//!
//! Each statement is one property that a client can check, independent of the target. Statements that hold on
//! kube-apiserver only are listed in [`DIFFERENCES`]; they must fail on the embedded targets. No statement requires a
//! controller, is disturbed by one, or depends on absolute versions.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod apply;
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
mod shards;
mod subresources;
mod targets;
mod update;
mod watch;
mod watch_list;
mod watch_stream;

use std::process::ExitCode;

use runner::Difference;

/// Known differences of the embedded server: statement, part of the failure message, reason. The page "The
/// embedded API server" of the book lists the same.
const DIFFERENCES: &[Difference] = &[
    differs(
        "corners::a_duplicate_environment_variable_causes_a_warning",
        "the warning is \"\"",
        "no warnings about questionable but valid values",
    ),
    differs(
        "embedded::corners::a_user_without_permission_is_refused",
        " left: 200\n right: 403",
        "the in-process client is admin",
    ),
    differs(
        "differences::a_field_that_is_null_is_not_one_that_is_absent",
        "failed rule: ",
        "CEL does not distinguish them",
    ),
    differs(
        "differences::a_metric_of_an_autoscaler_needs_its_source",
        " left: 201\n right: 422",
        "metrics of autoscalers are not validated",
    ),
    differs(
        "differences::a_policy_of_admission_is_enforced",
        "condition does not hold",
        "admission policies are not enforced",
    ),
    differs(
        "differences::a_rule_may_have_macros_of_two_variables",
        "undeclared reference to 'all'",
        "CEL macros with two variables are missing",
    ),
    differs(
        "differences::a_rule_that_may_cost_too_much_is_refused",
        " left: 201\n right: 422",
        "costs are limited when a rule runs",
    ),
    differs(
        "differences::a_rule_with_a_wrong_pattern_is_refused",
        " left: 201\n right: 422",
        "patterns are parsed when a rule runs",
    ),
    differs(
        "differences::a_rule_with_an_unknown_function_is_refused",
        " left: 201\n right: 422",
        "more functions are accepted",
    ),
    differs(
        "differences::a_dns_server_must_be_an_address",
        " left: 201\n right: 422",
        "DNS settings are not validated",
    ),
    differs(
        "differences::a_user_of_a_security_context_is_checked",
        " left: 201\n right: 422",
        "security contexts are not validated",
    ),
    differs(
        "differences::a_weight_of_an_affinity_is_checked",
        " left: 201\n right: 422",
        "affinity is not validated",
    ),
    differs(
        "differences::an_autoscaler_of_version_1_has_other_metrics_in_an_annotation",
        "the metrics are null",
        "version 1 supports the CPU target only",
    ),
    differs(
        "differences::list_functions_support_sets",
        "failed rule: ",
        "only CEL operators support sets and maps",
    ),
    differs(
        "differences::raw_data_keep_their_bytes_in_protobuf",
        "the bytes differ",
        "raw data is stored as compact JSON",
    ),
    differs("differences::the_sum_of_no_numbers_is_of_their_type", "failed rule: ", "it is the integer 0"),
    differs("differences::too_many_digits_are_rejected", "failed rule: ", "all are written"),
    differs(
        "discovery::an_openapi_document_describes_its_fields",
        "[\"description\"].is_string()",
        "OpenAPI documents lack descriptions of built-in types",
    ),
    differs(
        "paging::pages_of_a_namespace_selected_by_field_do_not_continue",
        "left: (\"a b c\", \"d e\")",
        "the embedded server returns the next pages",
    ),
    differs(
        "subresources::a_limit_range_completes_pods",
        "condition does not hold",
        "limit ranges are not enforced",
    ),
    differs(
        "subresources::a_quota_refuses_what_goes_beyond",
        "condition does not hold",
        "quotas are not enforced",
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
        shards::ALL,
        subresources::ALL,
        update::ALL,
        watch::ALL,
        watch_list::ALL,
    ];
    let statements = statements.concat();
    check_list(&statements);
    runner::run(targets::Targets::open().await, &statements, DIFFERENCES).await
}

/// Checks that every listed statement exists and is documented.
fn check_list(statements: &[runner::Statement<targets::Target>]) {
    let page = include_str!("../../../../docs/book/src/reference/apiserver.md");
    for Difference { statement: listed, .. } in DIFFERENCES {
        let name = listed.strip_prefix("embedded::").or(listed.strip_prefix("https::")).unwrap_or(listed);
        assert!(statements.iter().any(|statement| statement.name == name), "no statement is called {name}");
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is missing in docs/book/src/reference/apiserver.md"
        );
    }
}
