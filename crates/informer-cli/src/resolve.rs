//! Resolves a resource name of the command line.
//!
//! A name is a plural, singular, short name or kind, alone or followed by a group, or by a version and a
//! group. Names are compared case-insensitively. The core group takes precedence over the other built-in
//! groups, and built-in groups over custom ones; a name that matches two groups of the same rank is
//! ambiguous. This module works on discovered resources and sends no request.

use crate::cli_error::{CliError, UNKNOWN_RESOURCE};

/// A resource in one of its served versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl Served {
    /// Returns the name for the command line: `pods`, `deployments.apps`.
    pub(crate) fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the name as `kubectl -o name` prints it: `pod`, `deployment.apps`.
    pub(crate) fn singular_name(&self) -> String {
        let singular =
            if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.clone() };
        if self.group.is_empty() { singular } else { format!("{singular}.{}", self.group) }
    }

    fn is_called(&self, name: &str) -> bool {
        let short = self.short_names.iter().map(String::as_str);
        let mut names = [&*self.plural, &*self.singular, &*self.kind].into_iter().chain(short);
        names.any(|known| !known.is_empty() && known.eq_ignore_ascii_case(name))
    }

    fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Precedence of the group; smaller values win.
    fn rank(&self) -> u8 {
        match &*self.group {
            "" => 0,
            group if !group.contains('.') => 1,
            // Some of these groups have `events` or `pods` too, for example `metrics.k8s.io`.
            group if group.ends_with(".k8s.io") => 2,
            _ => 3,
        }
    }
}

/// Finds the resource that a name refers to. `served` lists the preferred version of each group first.
pub(crate) fn resolve<'a>(served: &'a [Served], text: &str) -> Result<&'a Served, CliError> {
    let wanted = Wanted::parse(text);
    let matching: Vec<&Served> = served.iter().filter(|one| wanted.matches(one)).collect();
    let best_rank = matching.iter().map(|one| one.rank()).min();
    let mut best: Vec<&Served> = matching.into_iter().filter(|one| Some(one.rank()) == best_rank).collect();
    // The first version of each resource is the preferred one.
    let mut seen: Vec<String> = Vec::new();
    best.retain(|one| {
        let name = one.name();
        let first = !seen.contains(&name);
        seen.push(name);
        first
    });
    match best[..] {
        [] => Err(unknown(served, text, &wanted)),
        [one] if one.can("list") && one.can("watch") => Ok(one),
        [one] => {
            let hint = format!(
                "supported verbs: {}",
                if one.verbs.is_empty() { "none".into() } else { one.verbs.join(", ") }
            );
            Err(CliError::new(format!("{} does not support watch", one.name()), hint))
        }
        _ => {
            let names: Vec<String> = best.iter().map(|one| one.name()).collect();
            Err(CliError::new(format!("\"{text}\" is ambiguous"), format!("use {}", names.join(" or "))))
        }
    }
}

/// A parsed resource name.
struct Wanted<'a> {
    name: &'a str,
    /// Everything after the first dot: a group, or a version and a group.
    qualifier: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn parse(text: &'a str) -> Self {
        let (name, qualifier) =
            text.split_once('.').map_or((text, None), |(name, qualifier)| (name, Some(qualifier)));
        Self { name, qualifier }
    }

    fn matches(&self, served: &Served) -> bool {
        let Some(qualifier) = self.qualifier else { return served.is_called(self.name) };
        let (version, group) = qualifier.split_once('.').unwrap_or((qualifier, ""));
        let has_group = !served.group.is_empty() && served.group.eq_ignore_ascii_case(qualifier);
        let has_version_and_group =
            served.version.eq_ignore_ascii_case(version) && served.group.eq_ignore_ascii_case(group);
        (has_group || has_version_and_group) && served.is_called(self.name)
    }
}

fn unknown(served: &[Served], text: &str, wanted: &Wanted<'_>) -> CliError {
    let message = format!("the server has no resource \"{text}\"");
    if !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit()) {
        return CliError::new(message, format!("set the size of the demo cluster with --demo-pods {text}"));
    }
    let in_other_groups = served.iter().filter(|one| one.is_called(wanted.name)).map(Served::name);
    let mut near: Vec<String> = in_other_groups.collect();
    if near.is_empty() {
        near = nearest(served, &wanted.name.to_lowercase());
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
    let mut near: Vec<(usize, u8, String)> = served
        .iter()
        .filter(|one| one.can("watch"))
        .map(|one| (distance(one), one.rank(), one.name()))
        .collect();
    near.retain(|(distance, ..)| *distance <= 1 + name.len() / 4);
    near.sort();
    let closest = near.first().map_or(0, |(distance, ..)| *distance);
    near.into_iter().filter(|(distance, ..)| *distance <= closest + 1).map(|(.., name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> Served {
        Served {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            short_names: short.iter().map(|name| (*name).into()).collect(),
            namespaced: true,
            verbs: ["list", "watch"].map(str::to_owned).into(),
        }
    }

    fn cluster() -> Vec<Served> {
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
            Served {
                verbs: vec!["create".into()],
                ..served("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", &[])
            },
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
