//! `informer get`: prints the current objects and exits.

use super::target::Target;
use crate::args::{View, Watch};
use crate::cli_error::CliError;
use crate::resolve::Served;
use crate::show::{KindObjects, Listing, LiveKind, Namespaces, Screen};
use informer::{Object, SharedInformer};
use jiff::Timestamp;
use kube::core::DynamicObject;
use std::io::{self, ErrorKind, Write as _};

/// The targets, their informers in the same order, and how their objects are formatted.
pub(crate) struct Objects<'a> {
    pub(crate) targets: &'a [Target],
    pub(crate) informers: &'a [SharedInformer<DynamicObject>],
    pub(crate) listing: Listing,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(
        args: &Watch,
        targets: &'a [Target],
        informers: &'a [SharedInformer<DynamicObject>],
        namespaces: Namespaces,
    ) -> Self {
        let listing = Listing {
            format: args.output,
            namespaces,
            // In all namespaces, several objects may have the name.
            is_single: namespaces == Namespaces::One && matches!(targets, [Target { name: Some(_), .. }]),
            live: args.view() == View::Live,
            headers: args.headers,
        };
        Self { targets, informers, listing }
    }

    /// Prints the objects of the caches. Objects that do not exist are an error after the others are printed.
    pub(crate) fn print(&self, screen: Option<Screen>) -> Result<(), CliError> {
        let missing = self.missing();
        if missing.len() < self.targets.len() {
            let kinds = self.first_objects(usize::MAX).into_iter().map(|kind| kind.first).collect();
            self.write(&self.listing.render(kinds, Timestamp::now(), screen))?;
        }
        self.missing_error(&missing)
    }

    fn write(&self, text: &str) -> Result<(), CliError> {
        // Only tables are colored.
        let result = if self.listing.format.is_table() {
            anstream::stdout().write_all(text.as_bytes())
        } else {
            io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
        };
        match result {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::new(format!("write output: {error}"), "is the disk full?"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the named objects that do not exist.
    fn missing(&self) -> Vec<&'a Target> {
        let pairs = self.targets.iter().zip(self.informers);
        let missing =
            pairs.filter(|(target, informer)| target.name.is_some() && informer.lister().is_empty());
        missing.map(|(target, _)| target).collect()
    }

    fn missing_error(&self, missing: &[&Target]) -> Result<(), CliError> {
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter().map(|target| target.display()).collect();
        let is_in_one_namespace = self.listing.namespaces == Namespaces::One
            && missing.iter().any(|target| target.resource.namespaced);
        let hint = if is_in_one_namespace { "-A searches all namespaces" } else { "" };
        Err(CliError::new(format!("not found: {}", names.join(", ")), hint))
    }

    /// Returns at most so many objects of each kind, in the order of their namespaces and names. Only these are decoded.
    pub(crate) fn first_objects(&self, limit: usize) -> Vec<LiveKind> {
        let mut kinds: Vec<(&Served, Vec<Object<DynamicObject>>)> = Vec::new();
        for (target, informer) in self.targets.iter().zip(self.informers) {
            let objects = informer.lister().list();
            match kinds.iter_mut().find(|(resource, _)| **resource == target.resource) {
                Some((_, known)) => known.extend(objects),
                None => kinds.push((&target.resource, objects)),
            }
        }
        let decoded = |(resource, mut objects): (&Served, Vec<Object<DynamicObject>>)| {
            // Objects that were named one by one come from several informers.
            objects.sort_by(|left, right| left.key().cmp(right.key()));
            let total = objects.len();
            objects.truncate(limit);
            // An object that cannot be decoded is printed without its contents.
            let decode = |object: &Object<DynamicObject>| {
                serde_json::from_slice(&object.to_json().unwrap_or_default()).unwrap_or_default()
            };
            let objects = objects.iter().map(decode).collect();
            LiveKind { first: KindObjects { shown: super::shown_kind(resource), objects }, total }
        };
        kinds.into_iter().map(decoded).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use serde_json::{Value, json};

    /// Formats pods of these namespaces, all called `web`, as the answer to `informer get pods/web`.
    fn rendered(format: &str, namespaces: Namespaces, pods: &[&str]) -> String {
        let line = ["informer", "get", "pods/web", "-o", format];
        let Ok(Command::Get(args)) = Args::parse_from(line).into_command() else { panic!("not get") };
        let mut resource = Served::default();
        (resource.plural, resource.kind, resource.namespaced) = ("pods".into(), "Pod".into(), true);
        let targets = [Target { resource, name: Some("web".to_owned()) }];
        let listing = Objects::new(&args.into_watch(), &targets, &[], namespaces).listing;
        let pod = |namespace: &&str| json!({"metadata": {"name": "web", "namespace": namespace}});
        let objects = pods.iter().map(pod).collect();
        let kind = KindObjects { shown: crate::watch::shown_kind(&targets[0].resource), objects };
        listing.render(vec![kind], Timestamp::UNIX_EPOCH, None)
    }

    /// Regression: `informer get pods/web -A -o json` printed one of the pods called `web` and dropped those of the
    /// other namespaces. A name was taken for a single object, whatever the namespaces. The test of the formats
    /// derived "single" from the number of objects, so it never had two.
    #[test]
    fn name_in_all_namespaces_is_a_list() {
        for pods in [&["data", "shop"][..], &["shop"]] {
            let json: Value = serde_json::from_str(&rendered("json", Namespaces::All, pods)).unwrap();
            let yaml: Value = serde_saphyr::from_str(&rendered("yaml", Namespaces::All, pods)).unwrap();
            for list in [json, yaml] {
                let items = list["items"].as_array().unwrap();
                let found: Vec<&Value> = items.iter().map(|pod| &pod["metadata"]["namespace"]).collect();
                assert_eq!(found, pods.to_vec(), "{list}");
            }
        }
    }

    #[test]
    fn name_in_one_namespace_is_a_single_object() {
        let pod: Value = serde_json::from_str(&rendered("json", Namespaces::One, &["shop"])).unwrap();
        assert_eq!(pod["metadata"]["namespace"], "shop");
    }
}
