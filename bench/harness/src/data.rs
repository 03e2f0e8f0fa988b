//! The pods of a run, generated once from a seed and encoded as JSON and protobuf; further pods are copies that
//! are made when they are sent.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench_data::pods::{Pod, Random};

use super::wire::{self, Encoding, FIRST_VERSION, Item, Values, with_send_time};
use crate::failure::Failure;

const SEED: u64 = 6;

/// Number of prepared pods of 1 KB: groups and namespaces repeat after this many pods.
const PREPARED_SMALL: usize = 12_200;

/// The size of the pods that a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// 10 KB of JSON.
    Usual,
    /// 1 KB of JSON.
    Small,
}

/// Prepared pods of both sizes, encoded in memory.
pub(super) struct Data {
    usual: Encoded,
    small: Encoded,
}

/// Prepared pods of one size.
struct Encoded {
    json: Vec<Item>,
    /// Empty if Go is not installed.
    protobuf: Vec<Item>,
}

/// Any number of pods. A smaller set is a prefix of a larger one.
///
/// Pods beyond the prepared ones are copies of these with another identity, made when they are sent, because a
/// million pods do not fit into memory.
#[derive(Clone, Copy)]
pub(super) struct Pods<'a> {
    items: &'a [Item],
    size: Size,
    encoding: Encoding,
}

impl Data {
    /// Generates `count` pods of 10 KB, and the pods of 1 KB; the Go program encodes them as protobuf.
    pub(super) fn generate(count: usize, go_program: Option<&Path>, folder: &Path) -> Result<Self, Failure> {
        let encoded = |size, count| -> Result<Encoded, Failure> {
            let texts = texts(size, count);
            let protobuf = match go_program {
                Some(program) => encode(&texts, program, folder)?,
                None => Vec::new(),
            };
            let json = items(size, texts.into_iter().map(String::into_bytes))?;
            Ok(Encoded { json, protobuf: items(size, protobuf)? })
        };
        Ok(Self { usual: encoded(Size::Usual, count)?, small: encoded(Size::Small, PREPARED_SMALL)? })
    }

    pub(super) fn pods(&self, size: Size, encoding: Encoding) -> Pods<'_> {
        let encoded = match size {
            Size::Usual => &self.usual,
            Size::Small => &self.small,
        };
        let items = match encoding {
            Encoding::Json => &encoded.json,
            Encoding::Protobuf => &encoded.protobuf,
        };
        Pods { items, size, encoding }
    }
}

impl Pods<'_> {
    /// Returns whether no pod is prepared in this encoding.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of bytes of a pod in a list.
    pub(super) fn item_len(&self, number: usize) -> usize {
        let item = self.item(number);
        item.len() + wire::item_overhead(self.encoding, item)
    }

    /// Appends a pod as an item of a list; in JSON, the caller adds the commas.
    pub(super) fn put_item(&self, out: &mut Vec<u8>, number: usize, version: u64) {
        self.item(number).put_item(self.encoding, out, &self.values(number, version, None));
    }

    /// Appends a pod as a frame of a watch.
    pub(super) fn put_frame(
        &self,
        out: &mut Vec<u8>,
        kind: &str,
        number: usize,
        version: u64,
        sent: Option<u64>,
    ) {
        self.item(number).put_frame(self.encoding, out, kind, &self.values(number, version, sent));
    }

    fn item(&self, number: usize) -> &Item {
        &self.items[number % self.items.len()]
    }

    fn values(&self, number: usize, version: u64, sent: Option<u64>) -> Values {
        let is_prepared = number < self.items.len();
        let identity = if is_prepared { Vec::new() } else { identity(self.size, number) };
        Values { version, sent, identity }
    }
}

/// Writes pods of 10 KB as JSON lines, for filling a control plane.
pub(super) fn write_lines(count: usize, file: &Path) -> Result<(), Failure> {
    fs::write(file, texts(Size::Usual, count).join("\n"))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))
}

fn texts(size: Size, count: usize) -> Vec<String> {
    let mut random = Random::new(SEED);
    let mut text = |number| {
        let pod = Pod::new(number, version(number));
        with_send_time(&match size {
            Size::Usual => pod.item(&mut random),
            Size::Small => pod.kilobyte(&mut random),
        })
    };
    (0..count).map(&mut text).collect()
}

/// Returns the version of a pod in the initial list.
pub(super) fn version(number: usize) -> u64 {
    FIRST_VERSION + number as u64
}

/// Returns the texts in which a copy of a prepared pod differs from it.
fn identity(size: Size, number: usize) -> Vec<String> {
    let pod = Pod::new(number, version(number));
    let mut identity = pod.identity().to_vec();
    if size == Size::Small {
        identity.push(pod.group());
    }
    identity
}

fn items(size: Size, all: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<Item>, Failure> {
    let item = |(number, bytes)| {
        Item::new(bytes, version(number), &identity(size, number))
            .ok_or_else(|| Failure::Failed(format!("pod {number} has no version, send time or identity")))
    };
    all.into_iter().enumerate().map(item).collect()
}

fn encode(texts: &[String], program: &Path, folder: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let (lines, encoded) = (folder.join("pods.json"), folder.join("pods.pb"));
    let failed = |what: String| Failure::Failed(format!("cannot encode pods as protobuf: {what}"));
    fs::write(&lines, texts.join("\n")).map_err(|error| failed(error.to_string()))?;
    let output = Command::new(program).arg("encode").arg(&lines).arg(&encoded).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    let bytes = fs::read(&encoded).map_err(|error| failed(error.to_string()))?;
    let mut rest = bytes.as_slice();
    let mut items = Vec::with_capacity(texts.len());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (item, after) = after
            .split_at_checked(u32::from_be_bytes(*length) as usize)
            .ok_or_else(|| failed("truncated output".to_owned()))?;
        items.push(item.to_vec());
        rest = after;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREPARED: usize = 10;

    fn frame(size: Size, number: usize) -> serde_json::Value {
        let Ok(data) = Data::generate(PREPARED, None, Path::new("")) else { panic!("cannot generate pods") };
        let mut out = Vec::new();
        data.pods(size, Encoding::Json).put_item(&mut out, number, version(number));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn copies_have_their_own_identity() {
        for (size, prepared) in [(Size::Usual, PREPARED), (Size::Small, PREPARED_SMALL)] {
            let (original, copy) = (frame(size, 3), frame(size, prepared + 3));
            let of = |pod: &serde_json::Value, path: &str| pod.pointer(path).unwrap().clone();
            for path in [
                "/metadata/name",
                "/metadata/uid",
                "/metadata/labels/pod-template-hash",
                "/metadata/ownerReferences/0/uid",
            ] {
                assert_ne!(of(&original, path), of(&copy, path), "{path}");
            }
            assert_eq!(of(&original, "/spec"), of(&copy, "/spec"));
        }
    }

    #[test]
    fn groups_continue_beyond_the_prepared_pods() {
        let pod = frame(Size::Small, PREPARED_SMALL + 2);
        assert_eq!(pod.pointer("/metadata/labels/group").unwrap(), "020-0000100");
    }
}
