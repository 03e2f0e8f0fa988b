//! The parts of an engine that its background tasks use.

use super::command::Command;
use super::rewrite::Rewriter;
use crate::clock::Clock;
use crate::status::{DiagnosticSink, StatusCell};
use informer_core::StoreReader;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The parts of an engine that its background tasks use.
#[derive(Clone, Copy)]
pub(super) struct EngineParts<'a> {
    pub(super) client: Option<&'a kube::Client>,
    pub(super) reader: &'a StoreReader,
    pub(super) commands: &'a mpsc::UnboundedSender<Command>,
    pub(super) status: &'a Arc<StatusCell>,
    pub(super) diagnostics: &'a DiagnosticSink,
    pub(super) clock: Clock,
    pub(super) stop: &'a watch::Sender<bool>,
}

impl EngineParts<'_> {
    /// Returns access to the entries for rewriting.
    pub(super) fn rewriter(&self) -> Rewriter {
        Rewriter { reader: self.reader.clone(), commands: self.commands.clone() }
    }
}
