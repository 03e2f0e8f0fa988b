//! Compression beside the pump: has the cache's compressor learn, and what is cached rewritten, on blocking threads.
//!
//! The pump only puts rewritten entries in, some at a time, between two batches; so no event waits for compression. What is learnt, and when,
//! the compressor decides.

use super::command::Command;
use super::options::InformerOptions;
use crate::reflector::stopped;
use crate::resource::ResourceType;
use crate::status::{Diagnostic, DiagnosticSink, StatusCell};
use informer_core::reflector::Config;
use informer_core::{Change, Compressor, Retention, StoreReader, StoreSnapshot};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

/// How many places are looked at before their entries are handed to the pump: some milliseconds of work.
const SLOTS_PER_SLICE: u32 = 256;

/// The compressor of one cache, and who looks after it.
#[derive(Clone)]
pub(super) struct CacheCompression {
    compressor: Arc<Compressor>,
    /// There may be something to do.
    wake: Arc<Notify>,
}

impl CacheCompression {
    /// If objects are to be compressed.
    pub(super) fn of(resource: &ResourceType, options: &InformerOptions) -> Option<Self> {
        let wanted = options.retention_or_default() == Retention::Compressed;
        wanted.then(|| Self::new(resource.is_secret()))
    }

    fn new(secret: bool) -> Self {
        let wake = Arc::new(Notify::new());
        let compressor = if secret { Compressor::without_training() } else { Compressor::with_training() };
        let waker = Arc::clone(&wake);
        compressor.on_training_needed(move || waker.notify_one());
        Self { compressor: Arc::new(compressor), wake }
    }

    /// Has a reflector compress what it reads.
    pub(super) fn configure(&self, config: &mut Config) {
        config.compressor = Some(Arc::clone(&self.compressor));
    }

    /// Looks at what a batch brought: whether there is more to learn, or something that was read before the newest dictionary.
    pub(super) fn observe_batch(&self, changes: &[Change], cached: &StoreSnapshot) {
        let outdated = |change: &Change| match change {
            Change::Added(entry) | Change::Updated { new: entry, .. } => !self.compressor.is_current(entry),
            Change::Deleted { .. } => false,
        };
        if self.compressor.needs_training(cached) || changes.iter().any(outdated) {
            self.wake.notify_one();
        }
    }
}

/// The task that does the work.
pub(super) struct CompressionTask {
    compression: CacheCompression,
    reader: StoreReader,
    commands: mpsc::UnboundedSender<Command>,
    stop: watch::Sender<bool>,
    status: Arc<StatusCell>,
    diagnostics: DiagnosticSink,
    /// Learns, if it is due.
    learn: fn(&Compressor, &StoreSnapshot) -> bool,
}

impl CompressionTask {
    pub(super) fn new(
        compression: CacheCompression,
        reader: StoreReader,
        commands: mpsc::UnboundedSender<Command>,
        stop: watch::Sender<bool>,
        status: Arc<StatusCell>,
        diagnostics: DiagnosticSink,
    ) -> Self {
        let learn = |compressor: &Compressor, cached: &StoreSnapshot| {
            compressor.needs_training(cached) && compressor.train(cached)
        };
        Self { compression, reader, commands, stop, status, diagnostics, learn }
    }

    /// Runs until the informer is to stop. Work that was begun on another thread then ends for nobody.
    pub(super) async fn run(self) {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            biased;
            () = stopped(&mut stop) => {}
            ended = self.work() => if ended == Exit::Panicked {
                // What is cached stays as it is, and so it does from now on (C9).
                self.compression.compressor.disable_training();
                self.status.record_compression_panic();
                self.diagnostics.report(&Diagnostic::CompressionPanicked);
            },
        }
    }

    async fn work(&self) -> Exit {
        loop {
            self.compression.wake.notified().await;
            let (compressor, reader) = (Arc::clone(&self.compression.compressor), self.reader.clone());
            let learn = self.learn;
            let done = match blocking(move || learn(&compressor, &reader.snapshot())).await {
                Ok(_) => self.rewrite().await,
                Err(ended) => Err(ended),
            };
            if let Err(ended) = done {
                return ended;
            }
        }
    }

    /// Rewrites the whole cache, a slice at a time.
    async fn rewrite(&self) -> Result<(), Exit> {
        let mut from = Some(0);
        while let Some(begin) = from {
            let (compressor, reader) = (Arc::clone(&self.compression.compressor), self.reader.clone());
            // A snapshot of its own for each slice: one that is held keeps what was rewritten.
            let rewrite = blocking(move || {
                reader.snapshot().recompress(begin, SLOTS_PER_SLICE, |entry| compressor.recompressed(entry))
            })
            .await?;
            from = rewrite.next();
            if !rewrite.is_empty() {
                let (done, put_in) = oneshot::channel();
                self.commands.send(Command::Rewrite(rewrite, done)).map_err(|_| Exit::ShutDown)?;
                put_in.await.map_err(|_| Exit::ShutDown)?;
            }
        }
        Ok(())
    }
}

/// Why nothing is compressed on other threads any more.
#[derive(Debug, PartialEq, Eq)]
enum Exit {
    /// The informer, or its runtime, goes down.
    ShutDown,
    Panicked,
}

/// Does something on a blocking thread.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, Exit> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| if error.is_panic() { Exit::Panicked } else { Exit::ShutDown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DiagnosticHook;
    use informer_core::{Scope, StoreWriter};
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use kube::core::PartialObjectMeta;
    use std::sync::Mutex;

    /// > Nothing is learnt from Secrets, which are compressed one by one.
    #[test]
    fn nothing_is_learnt_from_secrets_in_any_form() {
        let options = InformerOptions::default().retention(Retention::Compressed);
        let learns = |resource: ResourceType| {
            format!(
                "{:?}",
                CacheCompression::of(&resource, &options).map(|compression| compression.compressor)
            )
        };
        assert_eq!(learns(ResourceType::of::<Secret>(&())), "Some(training disabled)");
        assert_eq!(learns(ResourceType::of::<PartialObjectMeta<Secret>>(&())), "Some(training disabled)");
        assert_eq!(learns(ResourceType::of::<Pod>(&())), "Some(sampling)");
    }

    /// > A bad object, a panicking handler, a forbidden kind or a broken index function hurts only itself, and is reported.
    #[tokio::test]
    async fn c9_a_panic_in_compression_is_counted_and_told_once_and_objects_are_compressed_by_themselves() {
        let compression = CacheCompression::new(false);
        let (_writer, reader) = StoreWriter::new([Scope::All]);
        let (commands, _pump) = mpsc::unbounded_channel();
        let status = Arc::new(StatusCell::new(&[Scope::All]));
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let hook: DiagnosticHook =
            Arc::new(move |_, problem| heard.lock().unwrap().push(problem.to_string()));
        let diagnostics = DiagnosticSink { resource: "pods".into(), hook: Some(hook) };
        let stop = watch::Sender::new(false);
        let mut task = CompressionTask::new(
            compression.clone(),
            reader,
            commands,
            stop,
            Arc::clone(&status),
            diagnostics,
        );
        task.learn = |_, _| panic!("a planted one");
        compression.wake.notify_one();
        task.run().await;
        let expected = "compression panicked; no dictionary is learnt any more";
        assert_eq!(*told.lock().unwrap(), [expected]);
        assert_eq!(status.get(informer_core::Moment::default()).cache.compression_panics, 1);
        assert_eq!(format!("{:?}", compression.compressor), "training disabled");
    }

    #[test]
    fn nothing_is_compressed_unless_asked_for() {
        assert!(CacheCompression::of(&ResourceType::of::<Pod>(&()), &InformerOptions::default()).is_none());
    }
}
