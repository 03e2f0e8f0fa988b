//! The pods of a run, generated once from a seed and encoded as JSON and protobuf.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench_data::pods::{Pod, Random};

use super::wire::{Encoding, FIRST_VERSION, Item, with_send_time};
use crate::failure::Failure;

const SEED: u64 = 6;

/// Encoded pods in memory. A smaller set is a prefix of a larger one.
pub(super) struct Data {
    json: Vec<Item>,
    /// Empty if Go is not installed.
    protobuf: Vec<Item>,
}

impl Data {
    /// Generates pods; the Go program encodes them as protobuf.
    pub(super) fn generate(count: usize, go_program: Option<&Path>, folder: &Path) -> Result<Self, Failure> {
        let texts = texts(count);
        let protobuf = match go_program {
            Some(program) => encode(&texts, program, folder)?,
            None => Vec::new(),
        };
        let json = items(texts.into_iter().map(String::into_bytes))?;
        Ok(Self { json, protobuf: items(protobuf)? })
    }

    pub(super) fn items(&self, encoding: Encoding) -> &[Item] {
        match encoding {
            Encoding::Json => &self.json,
            Encoding::Protobuf => &self.protobuf,
        }
    }
}

/// Writes pods as JSON lines, for filling a control plane.
pub(super) fn write_lines(count: usize, file: &Path) -> Result<(), Failure> {
    fs::write(file, texts(count).join("\n"))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))
}

fn texts(count: usize) -> Vec<String> {
    let mut random = Random::new(SEED);
    let text = |number| with_send_time(&Pod::new(number, version(number)).item(&mut random));
    (0..count).map(text).collect()
}

/// Returns the version of a pod in the initial list.
pub(super) fn version(number: usize) -> u64 {
    FIRST_VERSION + number as u64
}

fn items(all: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<Item>, Failure> {
    let item = |(number, bytes)| {
        Item::new(bytes, version(number))
            .ok_or_else(|| Failure::Failed(format!("pod {number} has no version or no send time")))
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
