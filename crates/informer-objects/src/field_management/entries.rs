//! The owners of an object: reading and writing of `metadata.managedFields`.
//!
//! An owner is identified by the name of its manager, operation and subresource, and for updates also by
//! version.
//! Entries are written in the order of kube-apiserver. Nothing here decides who owns a field.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Manager;
use super::element::quoted;
use super::set::Set;

/// The maximum number of updating managers; if there are more, the oldest are merged.
const MAX_UPDATERS: usize = 10;

/// The manager into which the oldest updating managers are merged.
const ANCIENT: &str = "ancient-changes";

/// All owners of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owners(pub(super) BTreeMap<Id, Owned>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for applying managers, which have one entry whatever version they use.
    pub(super) version: String,
    pub(super) subresource: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The fields of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) version: String,
    pub(super) time: Option<String>,
    pub(super) set: Set,
}

impl Id {
    pub(super) fn new(manager: &Manager<'_>, operation: Operation) -> Self {
        let version = match operation {
            Operation::Apply => "",
            Operation::Update => manager.api_version,
        };
        Id {
            manager: if manager.name.is_empty() { "unknown" } else { manager.name }.to_owned(),
            operation,
            version: version.to_owned(),
            subresource: manager.subresource.to_owned(),
        }
    }

    /// Returns the description used in conflicts: `"recorder" with subresource "status" using v1`.
    pub(super) fn described(&self) -> String {
        let mut text = quoted(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.version);
        }
        text
    }
}

impl Owners {
    /// Reads `managedFields`. Without them, there are no owners.
    pub(super) fn read(entries: Option<&Value>) -> Result<Self, String> {
        let entries = entries.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut owners = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let (id, owned) = read(index, entry)?;
            owners.insert(id, owned);
        }
        Ok(Owners(owners))
    }

    /// Returns the owners as `managedFields`; `None` if there are none.
    pub(super) fn write(&self) -> Option<Value> {
        let mut entries: Vec<(&Id, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(id, owned)| {
            (id.operation, seconds(owned), &id.manager, &owned.version, &id.subresource)
        });
        let entries: Vec<Value> = entries.into_iter().map(|(id, owned)| write(id, owned)).collect();
        (!entries.is_empty()).then(|| entries.into())
    }

    /// Merges the oldest updating managers of each version until the maximum is respected.
    pub(super) fn cap(&mut self) {
        let updaters = self.0.iter().filter(|(id, _)| id.operation == Operation::Update);
        let mut updaters: Vec<(i64, Id)> = updaters.map(|(id, owned)| (seconds(owned), id.clone())).collect();
        updaters.sort();
        let mut count = updaters.len();
        let mut first_of: BTreeMap<String, Id> = BTreeMap::new();
        for (_, id) in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let Some(first) = first_of.get(&id.version) else {
                first_of.insert(id.version.clone(), id);
                continue;
            };
            let bucket = Id {
                manager: ANCIENT.to_owned(),
                operation: Operation::Update,
                version: id.version.clone(),
                subresource: String::new(),
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&id) {
                let all = self.0.entry(bucket).or_insert_with(|| owned.clone());
                all.set.extend(&owned.set);
                // The later of the two times, since `updaters` is sorted by time.
                all.time = owned.time;
            }
            count -= 1;
        }
    }
}

/// Whether `managedFields` of a request reset all owners: an empty list, or one empty entry.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    const KNOWN: [&str; 7] =
        ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => {
            let values = KNOWN.iter().filter_map(|name| entry.get(name));
            values.into_iter().all(|value| value.is_null() || value == "")
        }
        _ => false,
    }
}

fn read(index: usize, entry: &Value) -> Result<(Id, Owned), String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let version = text("apiVersion");
    if version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => return Err(format!("invalid fieldsType {} in managed fields entry {index}", quoted(other))),
    }
    let set = match entry.get("fieldsV1") {
        Some(fields) => Set::parse(fields)
            .map_err(|why| format!("error decoding versioned set from {entry}: error decoding set: {why}"))?,
        None => Set::default(),
    };
    let id_version = match operation {
        Operation::Apply => String::new(),
        Operation::Update => version.clone(),
    };
    let id =
        Id { manager: text("manager"), operation, version: id_version, subresource: text("subresource") };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((id, Owned { version, time, set }))
}

fn write(id: &Id, owned: &Owned) -> Value {
    let operation = match id.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            entry.insert(name.to_owned(), text.into());
        }
    };
    put("manager", &id.manager);
    put("operation", operation);
    put("apiVersion", &owned.version);
    put("time", owned.time.as_deref().unwrap_or_default());
    put("fieldsType", "FieldsV1");
    put("subresource", &id.subresource);
    entry.insert("fieldsV1".to_owned(), owned.set.to_value());
    entry.into()
}

fn seconds(owned: &Owned) -> i64 {
    let time = owned.time.as_ref().and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}
