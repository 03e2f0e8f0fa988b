//! `informer get`: prints the current objects and exits.

use super::target::Target;
use crate::args::{View, Watch};
use crate::cli_error::CliError;
use crate::resolve::Served;
use crate::show::{Format, KindObjects, Listing, LiveKind, Namespaces, Screen};
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
            format: args.output.clone(),
            namespaces,
            sort_by: args.sort_by.clone(),
            is_single: matches!(targets, [Target { name: Some(_), .. }]),
            live: args.view() == View::Live,
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
    fn kinds(&self) -> Vec<KindObjects> {
        self.first_objects(usize::MAX).into_iter().map(|kind| kind.first).collect()
    }

    /// Returns the objects of each kind for a screen with so many rows.
    pub(crate) fn visible(&self, rows: usize) -> Vec<LiveKind> {
        // Which objects come first depends on a field of all of them.
        self.first_objects(if self.listing.sort_by.is_some() { usize::MAX } else { rows })
    }

    /// Returns at most so many objects of each kind. Only these are decoded.
    fn first_objects(&self, limit: usize) -> Vec<LiveKind> {
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
