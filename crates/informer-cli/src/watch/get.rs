//! `informer get`: prints the current objects and exits.

use super::target::Target;
use crate::args::Watch;
use crate::cli_error::CliError;
use crate::resolve::Served;
use crate::show::{Format, KindObjects, Listing, Namespaces, Screen};
use informer::SharedInformer;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;
use std::io::{self, ErrorKind, Write as _};

/// The namespace and the name of an object, and the object as JSON.
type KeyedObject = ((String, String), Value);

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
            format: args.output.clone(),
            namespaces,
            sort_by: args.sort_by.clone(),
            is_single: matches!(targets, [Target { name: Some(_), .. }]),
        };
        Self { targets, informers, listing }
    }

    /// Prints the objects of the caches. Objects that do not exist are an error after the others are printed.
    pub(crate) fn print(&self, screen: Option<Screen>) -> Result<(), CliError> {
        let missing = self.missing();
        if missing.len() < self.targets.len() {
            let kinds = self.kinds();
            self.check_sort_field(&kinds)?;
            self.write(&self.listing.render(kinds, Timestamp::now(), screen))?;
        }
        self.missing_error(&missing)
    }

    fn write(&self, text: &str) -> Result<(), CliError> {
        let result = match self.listing.format {
            // Only tables are colored.
            Format::Table | Format::Wide | Format::CustomColumns(_) => {
                anstream::stdout().write_all(text.as_bytes())
            }
            _ => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
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

    /// Returns the objects of each kind, in the order of their namespaces and names.
    pub(crate) fn kinds(&self) -> Vec<KindObjects> {
        let mut kinds: Vec<(Served, Vec<KeyedObject>)> = Vec::new();
        for (target, informer) in self.targets.iter().zip(self.informers) {
            let objects = informer.lister().list().into_iter().map(|object| {
                let key = (object.namespace().unwrap_or_default().to_owned(), object.name().to_owned());
                // An object that cannot be decoded is printed without its contents.
                let json = object.to_json().unwrap_or_default();
                (key, serde_json::from_slice(&json).unwrap_or_default())
            });
            match kinds.iter_mut().find(|(resource, _)| *resource == target.resource) {
                Some((_, known)) => known.extend(objects),
                None => kinds.push((target.resource.clone(), objects.collect())),
            }
        }
        let sorted = |(resource, mut objects): (Served, Vec<KeyedObject>)| {
            objects.sort_by(|(left, _), (right, _)| left.cmp(right));
            let objects = objects.into_iter().map(|(_, object)| object).collect();
            KindObjects { shown: super::shown_kind(&resource), objects }
        };
        kinds.into_iter().map(sorted).collect()
    }

    /// Returns an error if no object has the field of `--sort-by`, which is probably misspelled.
    fn check_sort_field(&self, kinds: &[KindObjects]) -> Result<(), CliError> {
        let Some(path) = &self.listing.sort_by else { return Ok(()) };
        let mut objects = kinds.iter().flat_map(|kind| &kind.objects).peekable();
        if objects.peek().is_some() && objects.all(|object| path.select(object).is_empty()) {
            let hint = "example: --sort-by .metadata.creationTimestamp";
            return Err(CliError::new("no object has the field of --sort-by", hint));
        }
        Ok(())
    }
}
