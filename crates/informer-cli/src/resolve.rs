//! Resolves a resource name of the command line.
//!
//! The library finds the resource; this module adds hints for the command line. It works on discovered resources
//! and sends no request.

use crate::cli_error::{CliError, UNKNOWN_RESOURCE};
use informer::discovery::find;
use informer::error::ResolveError;

pub(crate) use informer::discovery::ServedResource as Served;

/// Finds the watchable resource that a name refers to. `served` lists the preferred version of each group first.
pub(crate) fn resolve<'a>(served: &'a [Served], text: &str) -> Result<&'a Served, CliError> {
    match find(served, text) {
        Ok(resource) if resource.supports("list") && resource.supports("watch") => Ok(resource),
        Ok(resource) => {
            let verbs = if resource.verbs.is_empty() { "none".into() } else { resource.verbs.join(", ") };
            let hint = format!("supported verbs: {verbs}");
            Err(CliError::new(format!("{} does not support watch", resource.name()), hint))
        }
        Err(ResolveError::Unknown { other_groups, .. }) => Err(unknown(served, text, other_groups)),
        Err(ResolveError::Ambiguous { candidates, .. }) => {
            Err(CliError::new(format!("\"{text}\" is ambiguous"), format!("use {}", candidates.join(" or "))))
        }
        Err(error) => Err(CliError::new(error.to_string(), "")),
    }
}

/// Returns the error for a name that no resource has; `near` lists resources of this name in other groups.
fn unknown(served: &[Served], text: &str, mut near: Vec<String>) -> CliError {
    let message = format!("the server has no resource \"{text}\"");
    if !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit()) {
        return CliError::new(message, format!("set the size of the demo cluster with --demo-pods {text}"));
    }
    if text == "all" {
        return CliError::new(message, "name the kinds, such as pods,deployments,services");
    }
    if near.is_empty() {
        let name = text.split_once('.').map_or(text, |(name, _)| name);
        near = nearest(served, &name.to_lowercase());
    }
    near.dedup();
    near.truncate(3);
    let hint = if near.is_empty() {
        UNKNOWN_RESOURCE.to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    };
    CliError::new(message, hint)
}

/// Returns the most similar names.
fn nearest(served: &[Served], name: &str) -> Vec<String> {
    // The comparison is quadratic in the length, and no resource has such a long name.
    if name.len() > 64 {
        return Vec::new();
    }
    let distance = |one: &Served| {
        let names = [one.plural.to_lowercase(), one.singular.to_lowercase(), one.kind.to_lowercase()];
        let best = names.iter().map(|known| strsim::damerau_levenshtein(name, known)).min();
        best.unwrap_or(usize::MAX)
    };
    let mut near: Vec<(usize, String)> =
        served.iter().filter(|one| one.supports("watch")).map(|one| (distance(one), one.name())).collect();
    near.retain(|(distance, ..)| *distance <= 1 + name.len() / 4);
    near.sort();
    let closest = near.first().map_or(0, |(distance, ..)| *distance);
    near.into_iter().filter(|(distance, ..)| *distance <= closest + 1).map(|(.., name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> Served {
        let mut served = Served::default();
        (served.group, served.version) = (group.into(), version.into());
        (served.plural, served.singular, served.kind) = (plural.into(), kind.to_lowercase(), kind.into());
        served.short_names = short.iter().map(|name| (*name).into()).collect();
        served.verbs = ["list", "watch"].map(str::to_owned).into();
        served
    }

    fn cluster() -> Vec<Served> {
        let mut reviews = served("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", &[]);
        reviews.verbs = vec!["create".into()];
        vec![
            served("", "v1", "pods", "Pod", &["po"]),
            served("", "v1", "podtemplates", "PodTemplate", &[]),
            served("", "v1", "events", "Event", &["ev"]),
            served("events.k8s.io", "v1", "events", "Event", &["ev"]),
            served("apps", "v1", "deployments", "Deployment", &["deploy"]),
            served("apps", "v1beta1", "deployments", "Deployment", &["deploy"]),
            served("a.example.com", "v1", "widgets", "Widget", &["wi"]),
            served("b.example.com", "v2", "widgets", "Widget", &["wi"]),
            served("b.example.com", "v1", "widgets", "Widget", &["wi"]),
            served("example.com", "v1", "pods", "Pod", &[]),
            reviews,
        ]
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let cluster = cluster();
        let found = match resolve(&cluster, text) {
            Ok(one) => format!("{}/{}/{}", one.group, one.version, one.plural),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn names_resolve_to_their_resource() {
        for text in ["pods", "pod", "po", "Pod", "PODS", "pods.v1", "pods.v1."] {
            check(text, "/v1/pods");
        }
        for text in ["deployments", "deploy", "deployment.apps", "deployments.v1.apps"] {
            check(text, "apps/v1/deployments");
        }
        check("deployments.v1beta1.apps", "apps/v1beta1/deployments");
        check("events", "/v1/events");
        check("events.events.k8s.io", "events.k8s.io/v1/events");
        check("pods.example.com", "example.com/v1/pods");
        check("wi.b.example.com", "b.example.com/v2/widgets");
        check("widgets.v1.b.example.com", "b.example.com/v1/widgets");
    }

    #[test]
    fn unresolvable_name_is_an_error_with_hint() {
        check("widgets", "\"widgets\" is ambiguous (use widgets.a.example.com or widgets.b.example.com)");
        check("pdos", "the server has no resource \"pdos\" (did you mean pods or pods.example.com?)");
        check("deploymnets", "the server has no resource \"deploymnets\" (did you mean deployments.apps?)");
        check(
            "deployments.extensions",
            "the server has no resource \"deployments.extensions\" (did you mean deployments.apps?)",
        );
        check("zebras", "the server has no resource \"zebras\" (kubectl api-resources lists all resources)");
        check(
            "tokenreviews",
            "tokenreviews.authentication.k8s.io does not support watch (supported verbs: create)",
        );
        check(
            "all",
            "the server has no resource \"all\" (name the kinds, such as pods,deployments,services)",
        );
        check(
            &"x".repeat(100_000)[..80],
            &format!(
                "the server has no resource \"{}\" (kubectl api-resources lists all resources)",
                "x".repeat(80)
            ),
        );
        check("", "the server has no resource \"\" (kubectl api-resources lists all resources)");
    }

    /// Regression: a number, meant as the size of the demo cluster, was reported as an unknown resource without a
    /// hint.
    #[test]
    fn number_gets_a_specific_hint() {
        let message = resolve(&cluster(), "100").unwrap_err().to_string();
        assert!(message.ends_with("(set the size of the demo cluster with --demo-pods 100)"), "{message}");
    }
}
