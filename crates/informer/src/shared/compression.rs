//! The compression task: trains the dictionary of a cache and recompresses cached entries, on blocking
//! threads.
//!
//! The pump only installs recompressed entries, so no event waits for compression. The compressor decides when
//! to train and on which samples; this file does not.

use super::options::InformerOptions;
use super::rewrite::{Exit, Rewriter, blocking, run_until_stopped};
use crate::resource::ResourceType;
use crate::status::{Diagnostic, DiagnosticSink, StatusCell};
use informer_core::reflector::Config;
use informer_core::{Change, Compressor, Retention, StoreSnapshot};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The compressor of one cache, and the wake-up of its compression task.
#[derive(Clone)]
pub(super) struct CacheCompression {
    compressor: Arc<Compressor>,
    /// Notified when training or recompression may be needed.
    wake: Arc<Notify>,
}

impl CacheCompression {
    /// Creates a compressor if the options ask for compression.
    pub(super) fn from_options(resource: &ResourceType, options: &InformerOptions) -> Option<Self> {
        let is_compressed = options.retention_or_default() == Retention::Compressed;
        is_compressed.then(|| Self::new(resource.is_secret()))
    }

    fn new(secret: bool) -> Self {
        let wake = Arc::new(Notify::new());
        let compressor = if secret { Compressor::without_training() } else { Compressor::with_training() };
        let waker = Arc::clone(&wake);
        compressor.on_training_needed(move || waker.notify_one());
        Self { compressor: Arc::new(compressor), wake }
    }

    /// Makes a reflector compress the objects it reads.
    pub(super) fn configure(&self, config: &mut Config) {
        config.compressor = Some(Arc::clone(&self.compressor));
    }

    /// Wakes the compression task if training is due, or if the batch contains entries that are not
    /// compressed with the newest dictionary.
    pub(super) fn observe_batch(&self, changes: &[Change], snapshot: &StoreSnapshot) {
        let is_outdated = |change: &Change| match change {
            Change::Added(entry) | Change::Updated { new: entry, .. } => !self.compressor.is_current(entry),
            Change::Deleted { .. } | Change::Released(_) => false,
        };
        if self.compressor.needs_training(snapshot) || changes.iter().any(is_outdated) {
            self.wake.notify_one();
        }
    }
}

/// The task that trains dictionaries and recompresses the cache.
pub(super) struct CompressionTask {
    compression: CacheCompression,
    rewriter: Rewriter,
    stop: watch::Sender<bool>,
    status: Arc<StatusCell>,
    diagnostics: DiagnosticSink,
    /// Trains a dictionary if that is due. A field so that tests can replace it.
    train: fn(&Compressor, &StoreSnapshot) -> bool,
}

impl CompressionTask {
    pub(super) fn new(
        compression: CacheCompression,
        rewriter: Rewriter,
        stop: watch::Sender<bool>,
        status: &Arc<StatusCell>,
        diagnostics: &DiagnosticSink,
    ) -> Self {
        let train = |compressor: &Compressor, cached: &StoreSnapshot| {
            compressor.needs_training(cached) && compressor.train(cached)
        };
        let (status, diagnostics) = (Arc::clone(status), diagnostics.clone());
        Self { compression, rewriter, stop, status, diagnostics, train }
    }

    /// Runs until the informer stops. The result of work that is still running on a blocking thread is then
    /// dropped.
    pub(super) async fn run(self) {
        if run_until_stopped(&self.stop, self.work()).await == Some(Exit::Panicked) {
            // Cached entries remain valid; nothing is trained or recompressed from now on (C9).
            self.compression.compressor.disable_training();
            self.status.record_compression_panic();
            self.diagnostics.report(&Diagnostic::CompressionPanicked);
        }
    }

    async fn work(&self) -> Exit {
        loop {
            self.compression.wake.notified().await;
            let compressor = Arc::clone(&self.compression.compressor);
            let reader = self.rewriter.reader.clone();
            let train = self.train;
            let result = match blocking(move || train(&compressor, &reader.snapshot())).await {
                // Also if no dictionary was trained: new entries may not be compressed with the newest one.
                Ok(_) => self.recompress().await,
                Err(exit) => Err(exit),
            };
            if let Err(exit) = result {
                return exit;
            }
        }
    }

    /// Recompresses the whole cache.
    async fn recompress(&self) -> Result<(), Exit> {
        let compressor = Arc::clone(&self.compression.compressor);
        self.rewriter.rewrite(move |entry| compressor.recompressed(entry)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DiagnosticHook;
    use informer_core::{Scope, StoreWriter};
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use kube::core::PartialObjectMeta;
    use std::sync::Mutex;
    use tokio::sync::mpsc;

    /// No dictionary is trained on Secrets; each of them is compressed on its own.
    #[test]
    fn no_dictionary_is_trained_on_secrets_or_their_metadata() {
        let options = InformerOptions::default().retention(Retention::Compressed);
        let training = |resource: ResourceType| {
            format!(
                "{:?}",
                CacheCompression::from_options(&resource, &options).map(|compression| compression.compressor)
            )
        };
        assert_eq!(training(ResourceType::of::<Secret>(&())), "Some(training disabled)");
        assert_eq!(training(ResourceType::of::<PartialObjectMeta<Secret>>(&())), "Some(training disabled)");
        assert_eq!(training(ResourceType::of::<Pod>(&())), "Some(sampling)");
    }

    /// A panic while training or recompressing affects nothing else, and is counted and reported.
    #[tokio::test]
    async fn c9_panic_in_compression_is_reported_once_and_disables_training() {
        let secret = false;
        let compression = CacheCompression::new(secret);
        let (_writer, reader) = StoreWriter::new([Scope::All]);
        let (commands, _pump) = mpsc::unbounded_channel();
        let status = Arc::new(StatusCell::new(&[Scope::All]));
        let reported = Arc::new(Mutex::new(Vec::new()));
        let recorder = Arc::clone(&reported);
        let hook: DiagnosticHook =
            Arc::new(move |_, diagnostic| recorder.lock().unwrap().push(diagnostic.to_string()));
        let diagnostics = DiagnosticSink { resource: "pods".into(), hook: Some(hook) };
        let stop = watch::Sender::new(false);
        let mut task = CompressionTask::new(
            compression.clone(),
            Rewriter { reader, commands },
            stop,
            &status,
            &diagnostics,
        );
        task.train = |_, _| panic!("injected panic");
        compression.wake.notify_one();
        task.run().await;
        let expected = "compression panicked; no further dictionary is trained";
        assert_eq!(*reported.lock().unwrap(), [expected]);
        assert_eq!(status.get(informer_core::Moment::default()).cache.compression_panics, 1);
        assert_eq!(format!("{:?}", compression.compressor), "training disabled");
    }

    #[test]
    fn default_retention_has_no_compression() {
        let pods = ResourceType::of::<Pod>(&());
        assert!(CacheCompression::from_options(&pods, &InformerOptions::default()).is_none());
    }
}
