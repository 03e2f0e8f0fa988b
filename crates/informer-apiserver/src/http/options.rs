//! Options of writes, from the query. A deletion can have them in its body instead: then the query is
//! ignored, even if the body is an empty object, as in kube-apiserver.

use informer_objects::body::FieldValidation;
use informer_objects::builtin;
use informer_objects::status::{Status, StatusCause};
use informer_schema::Type;
use jiff::Timestamp;
use serde_json::Value;

use crate::model::{DeleteOptions, Policy, WriteContext};
use crate::request::Query;

/// Maximum length of the name of a field manager, in bytes.
const MAX_MANAGER_BYTES: usize = 128;

/// The kind of options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionsKind {
    Create,
    Update,
    /// A patch other than an apply.
    Patch,
    Apply,
}

impl OptionsKind {
    fn name(self) -> &'static str {
        match self {
            OptionsKind::Create => "CreateOptions",
            OptionsKind::Update => "UpdateOptions",
            OptionsKind::Patch | OptionsKind::Apply => "PatchOptions",
        }
    }
}

/// Parses the options of a write. The field manager defaults to the program name in the user agent, `agent`.
pub(crate) fn write_context(
    kind: OptionsKind,
    query: &Query,
    agent: &str,
    now: Timestamp,
) -> Result<WriteContext, Status> {
    let mut causes = Vec::new();
    let dry_run = query.all("dryRun");
    check_dry_run(&dry_run, &mut causes);
    let force = query.flag("force").unwrap_or(false);
    if query.find("force").is_some() && kind == OptionsKind::Patch {
        let message = "Forbidden: may not be specified for non-apply patch";
        causes.push(StatusCause::new("FieldValueForbidden", "force", message));
    }
    let requested = query.get("fieldManager");
    if requested.is_empty() && kind == OptionsKind::Apply {
        let message = "Required value: is required for apply patch";
        causes.push(StatusCause::new("FieldValueRequired", "fieldManager", message));
    }
    check_manager(requested, &mut causes);
    let field_validation = match query.get("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let message = format!(
                "Unsupported value: \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            );
            causes.push(StatusCause::new("FieldValueNotSupported", "fieldValidation", message));
            FieldValidation::Warn
        }
    };
    if !causes.is_empty() {
        return Err(Status::invalid("meta.k8s.io", kind.name(), "", causes));
    }
    let manager = if requested.is_empty() { default_manager(agent) } else { requested.to_owned() };
    Ok(WriteContext {
        dry_run: !dry_run.is_empty(),
        field_validation,
        force,
        ..WriteContext::at(now, &manager)
    })
}

/// Parses the options of a deletion without a body.
pub(crate) fn delete_from_query(query: &Query) -> Result<DeleteOptions, Status> {
    let mut causes = Vec::new();
    let dry_run = query.all("dryRun");
    check_dry_run(&dry_run, &mut causes);
    let policy = parse_policy(query.find("propagationPolicy"), &mut causes);
    let orphan = query.flag("orphanDependents");
    let policy = policy_or_orphan(policy, orphan, &mut causes);
    // kube-apiserver rejects an empty value; `Query::number` would treat it as missing.
    if query.find("gracePeriodSeconds") == Some("") {
        return Err(Status::bad_request("strconv.ParseInt: parsing \"\": invalid syntax"));
    }
    reject_if_any(causes)?;
    Ok(DeleteOptions {
        uid: query.find("uid").map(str::to_owned),
        resource_version: query.find("resourceVersion").map(str::to_owned),
        policy,
        grace: query.number("gracePeriodSeconds")?,
        dry_run: !dry_run.is_empty(),
    })
}

/// Parses `DeleteOptions`: the body of a deletion, or `deleteOptions` of an eviction. A field of the wrong
/// type is an error, because a deletion cannot be undone.
pub(crate) fn delete_from_body(options: Value) -> Result<DeleteOptions, Status> {
    let type_id = Type::named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    let options = match type_id {
        Some(type_id) => builtin::read(type_id, options).map_err(Status::bad_request)?.object,
        None => options,
    };
    let text = |pointer: &str| options.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        let version = text("/apiVersion").unwrap_or_default();
        let message =
            format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\"");
        return Err(Status::bad_request(message));
    }
    let mut causes = Vec::new();
    let dry_run = options.get("dryRun").and_then(Value::as_array).into_iter().flatten();
    let dry_run: Vec<&str> = dry_run.filter_map(Value::as_str).collect();
    let policy = parse_policy(text("/propagationPolicy"), &mut causes);
    let policy =
        policy_or_orphan(policy, options.get("orphanDependents").and_then(Value::as_bool), &mut causes);
    check_dry_run(&dry_run, &mut causes);
    reject_if_any(causes)?;
    Ok(DeleteOptions {
        uid: text("/preconditions/uid").map(str::to_owned),
        resource_version: text("/preconditions/resourceVersion").map(str::to_owned),
        policy,
        grace: options.get("gracePeriodSeconds").and_then(Value::as_i64),
        dry_run: !dry_run.is_empty(),
    })
}

/// Returns the field manager for a user agent: its part before the first slash without control characters,
/// truncated to the maximum length; `unknown` if that is empty.
fn default_manager(agent: &str) -> String {
    let name = agent.split('/').next().unwrap_or_default();
    let printable: String = name.chars().filter(|character| !character.is_control()).collect();
    let end = (0..=printable.len().min(MAX_MANAGER_BYTES)).rev().find(|end| printable.is_char_boundary(*end));
    let name = &printable[..end.unwrap_or(0)];
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

fn check_manager(name: &str, causes: &mut Vec<StatusCause>) {
    if name.len() > MAX_MANAGER_BYTES {
        let message = format!("Too long: may not be more than {MAX_MANAGER_BYTES} bytes");
        causes.push(StatusCause::new("FieldValueTooLong", "fieldManager", message));
    }
    if name.chars().any(char::is_control) {
        let message = format!("Invalid value: {name:?}: should only contain printable characters");
        causes.push(StatusCause::new("FieldValueInvalid", "fieldManager", message));
    }
}

fn check_dry_run(values: &[&str], causes: &mut Vec<StatusCause>) {
    if values.iter().all(|value| *value == "All") {
        return;
    }
    let given: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    let message = format!("Unsupported value: [{}]: supported values: \"All\"", given.join(","));
    causes.push(StatusCause::new("FieldValueNotSupported", "dryRun", message));
}

fn parse_policy(name: Option<&str>, causes: &mut Vec<StatusCause>) -> Option<Policy> {
    let name = name?;
    match name {
        "Background" => Some(Policy::Background),
        "Foreground" => Some(Policy::Foreground),
        "Orphan" => Some(Policy::Orphan),
        _ => {
            let supported = r#""Foreground", "Background", "Orphan", "nil""#;
            let message = format!("Unsupported value: \"{name}\": supported values: {supported}");
            causes.push(StatusCause::new("FieldValueNotSupported", "propagationPolicy", message));
            None
        }
    }
}

/// Returns the propagation policy that a request sets with `propagationPolicy` (`policy`) or with its
/// predecessor `orphanDependents` (`orphan`). A request must not set both.
fn policy_or_orphan(
    policy: Option<Policy>,
    orphan: Option<bool>,
    causes: &mut Vec<StatusCause>,
) -> Option<Policy> {
    match (policy, orphan) {
        (Some(policy), Some(_)) => {
            let message = format!(
                "Invalid value: \"{policy:?}\": orphanDependents and deletionPropagation cannot be both set"
            );
            causes.push(StatusCause::new("FieldValueInvalid", "propagationPolicy", message));
            None
        }
        (None, Some(true)) => Some(Policy::Orphan),
        (None, Some(false)) => Some(Policy::Background),
        (policy, _) => policy,
    }
}

/// Returns the error 422 if there are causes.
fn reject_if_any(causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_manager_defaults_to_user_agent() {
        let manager = |query: &str, agent: &str| {
            write_context(OptionsKind::Update, &Query::parse(query), agent, Timestamp::UNIX_EPOCH)
                .map(|context| context.manager)
        };
        assert_eq!(manager("", "recorder/1.0").unwrap(), "recorder");
        assert_eq!(manager("", "").unwrap(), "unknown");
        assert_eq!(manager("fieldManager=me", "recorder/1.0").unwrap(), "me");
        assert_eq!(manager(&format!("fieldManager={}", "m".repeat(129)), "").unwrap_err().code, 422);
    }

    #[test]
    fn orphan_dependents_excludes_propagation_policy() {
        let from = |text: &str| delete_from_body(serde_json::from_str(text).unwrap());
        assert_eq!(from(r#"{"orphanDependents":true}"#).unwrap().policy, Some(Policy::Orphan));
        assert_eq!(from(r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#).unwrap_err().code, 422);
        assert_eq!(from(r#"{"kind":"Pod","apiVersion":"v1"}"#).unwrap_err().code, 400);
        assert!(from(r#"{"dryRun":["All"]}"#).unwrap().dry_run);
    }

    /// Regression: a field of the wrong type was ignored, so a malformed dry run or precondition deleted the
    /// object.
    #[test]
    fn delete_options_of_wrong_type_are_rejected() {
        let cases = [
            (r#"{"dryRun":"All"}"#, "string into Go struct field DeleteOptions.dryRun of type []string"),
            (r#"{"dryRun":[5]}"#, "number into Go struct field DeleteOptions.dryRun of type string"),
            (
                r#"{"preconditions":"x"}"#,
                "string into Go struct field DeleteOptions.preconditions of type v1.Preconditions",
            ),
            (
                r#"{"preconditions":{"uid":5}}"#,
                "number into Go struct field Preconditions.preconditions.uid of type string",
            ),
            (
                r#"{"preconditions":{"resourceVersion":5}}"#,
                "number into Go struct field Preconditions.preconditions.resourceVersion of type string",
            ),
            (
                r#"{"gracePeriodSeconds":"0"}"#,
                "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                r#"{"propagationPolicy":5}"#,
                "number into Go struct field DeleteOptions.propagationPolicy of type string",
            ),
        ];
        for (text, why) in cases {
            let refused = delete_from_body(serde_json::from_str(text).unwrap()).unwrap_err();
            assert_eq!(refused.message, format!("json: cannot unmarshal {why}"), "{text}");
            assert_eq!(refused.code, 400);
        }
        assert!(delete_from_body(serde_json::from_str(r#"{"dryRun":null,"strange":1}"#).unwrap()).is_ok());
    }
}
