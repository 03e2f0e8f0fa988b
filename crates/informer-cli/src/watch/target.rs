//! Resources and objects of the command line: `pods`, `pods/web-0`.

use crate::cli_error::CliError;
use crate::resolve::{Served, resolve};
use informer::selector::{FieldRequirement, FieldSelector};

/// A resource, or one object of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: Served,
    /// Name of the only object.
    pub(crate) name: Option<String>,
}

impl Target {
    /// Returns the name for messages: `pods`, `pods/web-0`.
    pub(crate) fn display(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.resource.name()),
            None => self.resource.name(),
        }
    }

    /// Returns the selector of the only object.
    pub(crate) fn field_selector(&self) -> Result<Option<FieldSelector>, CliError> {
        let Some(name) = &self.name else { return Ok(None) };
        let requirement = FieldRequirement::equals("metadata.name", name)
            .map_err(|error| CliError::usage(format!("invalid name \"{name}\": {error}"), ""))?;
        Ok(Some(FieldSelector::everything().and(requirement)))
    }
}

/// Resolves the arguments, without duplicates. A resource includes its objects that are named too.
pub(crate) fn targets(served: &[Served], arguments: &[String]) -> Result<Vec<Target>, CliError> {
    let mut targets: Vec<Target> = Vec::new();
    for argument in arguments.iter().filter(|argument| !argument.is_empty()) {
        let target = target(served, argument, targets.last())?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    if targets.is_empty() {
        return Err(CliError::usage("no resource given", "example: informer watch pods"));
    }
    let whole: Vec<Served> =
        targets.iter().filter(|target| target.name.is_none()).map(|target| target.resource.clone()).collect();
    targets.retain(|target| target.name.is_none() || !whole.contains(&target.resource));
    Ok(targets)
}

fn target(served: &[Served], argument: &str, previous: Option<&Target>) -> Result<Target, CliError> {
    let Some((resource, name)) = argument.split_once('/') else {
        return match resolve(served, argument) {
            Ok(resource) => Ok(Target { resource: resource.clone(), name: None }),
            // In kubectl, an argument after a resource is the name of an object.
            Err(error) => Err(match previous {
                Some(Target { resource, name: None }) => {
                    error.or_hint(format!("for an object: {}/{argument}", resource.plural))
                }
                _ => error,
            }),
        };
    };
    if name.is_empty() || name.contains(['/', '%']) {
        let hint = format!("expected RESOURCE/NAME, such as {resource}/web-0");
        return Err(CliError::usage(format!("invalid object \"{argument}\""), hint));
    }
    Ok(Target { resource: resolve(served, resource)?.clone(), name: Some(name.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Vec<Served> {
        let one = |plural: &str, kind: &str| {
            let mut served = Served::default();
            (served.version, served.plural, served.kind) = ("v1".into(), plural.into(), kind.into());
            served.verbs = ["list", "watch"].map(str::to_owned).into();
            served
        };
        vec![one("pods", "Pod"), one("services", "Service")]
    }

    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let found = match targets(&served(), &arguments) {
            Ok(targets) => targets.iter().map(Target::display).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{arguments:?}");
    }

    #[test]
    fn arguments_are_resources_or_objects() {
        check(&["pod", "services"], "pods services");
        check(&["pods/web-0", "pod/web-1", "Pod/web-0"], "pods/web-0 pods/web-1");
        check(&["pods/web-0", "services", "pods"], "services pods");
        check(&["service/a", "pods"], "services/a pods");
        check(&["", ""], "no resource given (example: informer watch pods)");
    }

    #[test]
    fn invalid_object_is_an_error() {
        check(&["pods/"], "invalid object \"pods/\" (expected RESOURCE/NAME, such as pods/web-0)");
        check(&["pods/a/b"], "invalid object \"pods/a/b\" (expected RESOURCE/NAME, such as pods/web-0)");
        check(
            &["zebras/a"],
            "the server has no resource \"zebras\" (kubectl api-resources lists all resources)",
        );
        check(
            &["pods", "web-4xkz8"],
            "the server has no resource \"web-4xkz8\" (for an object: pods/web-4xkz8)",
        );
        check(&["pods", "podz"], "the server has no resource \"podz\" (did you mean pods?)");
    }
}
