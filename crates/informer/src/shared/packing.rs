//! Compression beside the pump: has the cache's compressor learn, and what is cached rewritten, on blocking threads.
//!
//! The pump only puts rewritten entries in, some at a time, between two batches; so no event waits for compression. What is learnt, and when,
//! the compressor decides.

use super::options::Options;
use super::pump::Command;
use crate::reflector::stopped;
use crate::resource::ResourceType;
use informer_core::reflector::Config;
use informer_core::{Change, Compressor, Retention, Snapshot, StoreReader};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

/// How many places are looked at before their entries are handed to the pump: some milliseconds of work.
const SLICE: u32 = 256;

/// The compressor of one cache, and who looks after it.
#[derive(Clone)]
pub(super) struct Packing {
    compressor: Arc<Compressor>,
    /// There may be something to do.
    wake: Arc<Notify>,
}

impl Packing {
    /// If objects are to be compressed.
    pub(super) fn of(resource: &ResourceType, options: &Options) -> Option<Self> {
        let wanted = options.retention_or_default() == Retention::Compressed;
        wanted.then(|| Self::new(resource.is_secret()))
    }

    fn new(secret: bool) -> Self {
        let wake = Arc::new(Notify::new());
        let compressor = if secret { Compressor::unlearning() } else { Compressor::learning() };
        let waker = Arc::clone(&wake);
        compressor.on_due(move || waker.notify_one());
        Self { compressor: Arc::new(compressor), wake }
    }

    /// Has a reflector compress what it reads.
    pub(super) fn configure(&self, config: &mut Config) {
        config.compressor = Some(Arc::clone(&self.compressor));
    }

    /// Looks at what a batch brought: whether there is more to learn, or something that was read before the newest dictionary.
    pub(super) fn look(&self, changes: &[Change], cached: &Snapshot) {
        let outdated = |change: &Change| match change {
            Change::Added(entry) | Change::Updated { new: entry, .. } => !self.compressor.is_current(entry),
            Change::Deleted { .. } | Change::Resync { .. } => false,
        };
        if self.compressor.is_due(cached) || changes.iter().any(outdated) {
            self.wake.notify_one();
        }
    }
}

/// The task that does the work.
pub(super) struct Packer {
    packing: Packing,
    reader: StoreReader,
    commands: mpsc::UnboundedSender<Command>,
    stop: watch::Sender<bool>,
}

impl Packer {
    pub(super) fn new(
        packing: Packing,
        reader: StoreReader,
        commands: mpsc::UnboundedSender<Command>,
        stop: watch::Sender<bool>,
    ) -> Self {
        Self { packing, reader, commands, stop }
    }

    /// Runs until the informer is to stop. Work that was begun on another thread then ends for nobody.
    pub(super) async fn run(self) {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            biased;
            () = stopped(&mut stop) => {}
            // Only ends if the informer does.
            _ = self.work() => {}
        }
    }

    async fn work(&self) -> Option<()> {
        loop {
            self.packing.wake.notified().await;
            let (compressor, reader) = (Arc::clone(&self.packing.compressor), self.reader.clone());
            let learn = move || {
                let cached = reader.snapshot();
                compressor.is_due(&cached) && compressor.learn(&cached)
            };
            blocking(learn).await?;
            self.rewrite().await?;
        }
    }

    /// Rewrites the whole cache, a slice at a time.
    async fn rewrite(&self) -> Option<()> {
        let mut from = Some(0);
        while let Some(begin) = from {
            let (compressor, reader) = (Arc::clone(&self.packing.compressor), self.reader.clone());
            // A snapshot of its own for each slice: one that is held keeps what was rewritten.
            let rewrite = blocking(move || reader.snapshot().rewrite(&compressor, begin, SLICE)).await?;
            from = rewrite.next();
            if !rewrite.is_empty() {
                let (done, put_in) = oneshot::channel();
                self.commands.send(Command::Rewrite(rewrite, done)).ok()?;
                put_in.await.ok()?;
            }
        }
        Some(())
    }
}

/// Does something on a blocking thread. `None` if there are no such threads any more, or after a panic: then all stays as it is.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    match spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => {
            if error.is_panic() {
                tracing::error!("compression panicked; objects stay as they are");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use kube::core::PartialObjectMeta;

    /// > Nothing is learnt from Secrets, which are compressed one by one.
    #[test]
    fn nothing_is_learnt_from_secrets_in_any_form() {
        let options = Options::default().retention(Retention::Compressed);
        let learns = |resource: ResourceType| {
            format!("{:?}", Packing::of(&resource, &options).map(|packing| packing.compressor))
        };
        assert_eq!(learns(ResourceType::of::<Secret>(&())), "Some(never learns)");
        assert_eq!(learns(ResourceType::of::<PartialObjectMeta<Secret>>(&())), "Some(never learns)");
        assert_eq!(learns(ResourceType::of::<Pod>(&())), "Some(gathers)");
    }

    #[test]
    fn nothing_is_compressed_unless_asked_for() {
        assert!(Packing::of(&ResourceType::of::<Pod>(&()), &Options::default()).is_none());
    }
}
