//! A custom source: an informer for objects that do not come from an API server. Here: config maps made of the
//! JSON files of a directory.
//!
//!     mkdir files && echo '{"color": "blue"}' > files/theme.json
//!     cargo example custom_source -- files

use futures::stream::{self, StreamExt as _};
use informer::source::{
    Bytes, ListRequest, Response, ResponseFuture, Source, SourceError, WatchListPolicy, WatchRequest,
    WatchStart,
};
use informer::{Event, InformerOptions, Object, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const USAGE: &str = "usage: custom_source DIRECTORY

Prints the contents of the JSON files of a directory, each a flat object of texts, and their changes until Ctrl-C.";

const POLL_PERIOD: Duration = Duration::from_secs(1);
/// A watch from an older version is answered with 410, as by an API server; the informer then lists again.
const MAX_FRAMES: usize = 1_000;

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let directory = arguments.value("DIRECTORY")?;
        arguments.end()?;
        run(Path::new(&directory), |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Prints files and their changes until `done`.
pub(crate) async fn run(
    directory: &Path,
    print: impl Fn(String) + Send + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let source = Directory { path: directory.to_owned(), files: Arc::default() };
    // This source has lists and watches, but no watch-lists.
    let options = InformerOptions::default().watch_list(WatchListPolicy::Never);
    let maps = SharedInformer::<ConfigMap>::with_source(source, options);
    let _printing = maps.on_event(move |event| match event {
        Event::Added { object, .. } => print(format!("+ {} {}", object.name(), data(&object))),
        Event::Updated { new, .. } => print(format!("~ {} {}", new.name(), data(&new))),
        Event::Deleted { last, .. } => print(format!("- {}", last.name())),
    });
    maps.start();
    maps.wait_for_sync(Duration::from_secs(30)).await?;
    done.await;
    maps.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

fn data(map: &Object<ConfigMap>) -> String {
    let text = |map: &ConfigMap| serde_json::to_string(&map.data).unwrap_or_default();
    map.typed().map_or_else(|error| error.to_string(), |map| text(&map))
}

/// A source whose objects are the JSON files of a directory.
#[derive(Clone)]
struct Directory {
    path: PathBuf,
    files: Arc<Mutex<Files>>,
}

impl Source for Directory {
    fn list(&self, _: ListRequest) -> ResponseFuture {
        let source = self.clone();
        Box::pin(async move { Ok(Response::ok(source.read(Files::list).await?)) })
    }

    fn watch(&self, request: WatchRequest) -> ResponseFuture {
        let source = self.clone();
        Box::pin(async move {
            let WatchStart::After(version) = request.start else { return Ok(status(422, "Invalid")) };
            let version: u64 = version.as_str().parse().unwrap_or_default();
            if source.read(move |files| files.frames_after(version)).await?.is_none() {
                return Ok(status(410, "Expired"));
            }
            // The body is a stream of bytes; frames need not end where its items end.
            let body = stream::unfold((source, version), |(source, version)| async move {
                tokio::time::sleep(POLL_PERIOD).await;
                match source.read(move |files| files.frames_after(version)).await.transpose()? {
                    Ok((frames, version)) => Some((Ok(Bytes::from(frames)), (source, version))),
                    Err(error) => Some((Err(error), (source, version))),
                }
            });
            let end = tokio::time::sleep(request.timeout);
            Ok(Response::new(200, body.take_until(end)).with_content_type("application/json"))
        })
    }
}

impl Directory {
    /// Reads the files and returns a view of them. An error is one failed attempt: the informer reports it and
    /// tries again, with backoff.
    async fn read<T: Send + 'static>(
        &self,
        view: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        let source = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut files = source.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.update(&source.path).map(|()| view(&files))
        });
        let read = reading.await.map_err(std::io::Error::other).flatten();
        read.map_err(|error| SourceError::Connect { refused: false, source: error.into() })
    }
}

fn status(code: u16, reason: &str) -> Response {
    let status =
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason});
    Response::from_chunks(code, [status.to_string()]).with_content_type("application/json")
}

/// What was read last, and how it changed.
struct Files {
    /// Increases with each change, so that a watch continues where a list or another watch has ended.
    version: u64,
    objects: BTreeMap<String, Value>,
    /// The last changes as frames of a watch; the last frame leads to `version`.
    frames: VecDeque<String>,
}

impl Default for Files {
    fn default() -> Self {
        // Version 0 has a meaning of its own in Kubernetes.
        Self { version: 1, objects: BTreeMap::new(), frames: VecDeque::new() }
    }
}

impl Files {
    fn list(&self) -> String {
        let (version, items): (_, Vec<_>) = (self.version.to_string(), self.objects.values().collect());
        let metadata = json!({"resourceVersion": version});
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}).to_string()
    }

    /// The changes after this version, then a bookmark, which proves that there are no others; and the version
    /// it leads to. `None` if the changes are not known any more.
    fn frames_after(&self, version: u64) -> Option<(String, u64)> {
        let changes = usize::try_from(self.version.checked_sub(version)?).ok()?;
        let first = self.frames.len().checked_sub(changes)?;
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let bookmark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let frames = self.frames.range(first..).cloned().collect::<String>();
        Some((frames + &frame("BOOKMARK", &bookmark), self.version))
    }

    fn update(&mut self, path: &Path) -> std::io::Result<()> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "json") {
                let data = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
                found.insert(name, data);
            }
        }
        let deleted: Vec<String> =
            self.objects.keys().filter(|name| !found.contains_key(*name)).cloned().collect();
        for name in deleted {
            if let Some(object) = self.objects.remove(&name) {
                self.add_frame("DELETED", object);
            }
        }
        for (name, data) in found {
            // A file that is being written may be incomplete; its last contents stay.
            let Some(data): Option<BTreeMap<String, String>> = data else { continue };
            let (kind, mut object) = match self.objects.get(&name) {
                Some(object) if object["data"] == json!(data) => continue,
                Some(object) => ("MODIFIED", object.clone()),
                None => {
                    // A file that is deleted and created again is another object, so it gets another uid.
                    let uid = format!("{name}-{}", self.version);
                    let metadata = json!({"namespace": "files", "name": name, "uid": uid});
                    ("ADDED", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                }
            };
            object["data"] = json!(data);
            let object = self.add_frame(kind, object);
            self.objects.insert(name, object);
        }
        Ok(())
    }

    /// Adds a change, and returns the object with its new version.
    fn add_frame(&mut self, kind: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.frames.push_back(frame(kind, &object));
        if self.frames.len() > MAX_FRAMES {
            self.frames.pop_front();
        }
        object
    }
}

fn frame(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}
