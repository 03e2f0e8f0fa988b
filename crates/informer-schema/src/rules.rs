//! The properties of fields that only JSON has: treatment by patches and server-side apply, and defaults.
//!
//! Most fields have none of them and share one value.

/// The granularity of ownership in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapType {
    /// Each entry has its own owners.
    Granular,
    /// The map is owned as a whole.
    Atomic,
}

/// The identity of an entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// Entries have no identity: the list is owned as a whole.
    Atomic,
    /// An entry is identified by its value.
    Set,
    /// An entry is identified by the values of these fields.
    Map(&'static [&'static str]),
}

/// The treatment of a field by strategic merge patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patch {
    /// Whether a list is merged instead of replaced.
    pub merge: bool,
    /// Whether an object is replaced instead of merged.
    pub replace: bool,
    /// Whether fields that the patch does not contain are removed from the object.
    pub retain_keys: bool,
    /// The field that identifies entries of a list; empty for lists of scalars.
    pub key: &'static str,
}

/// The properties of a field that only JSON has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// The identity of the entries, if the field is a list.
    pub list: ListType,
    /// The granularity of ownership, if the documents have one for this field.
    pub map: Option<MapType>,
    /// The treatment by strategic merge patches.
    pub patch: Patch,
    /// The default as JSON text, if it is not the empty value of a field that is always written.
    pub default: Option<&'static str>,
}

// The constructors of the generated table.

pub(crate) const fn rules() -> Rules {
    let patch = Patch { merge: false, replace: false, retain_keys: false, key: "" };
    Rules { list: ListType::Atomic, map: None, patch, default: None }
}

impl Rules {
    pub(crate) const fn keys(self, keys: &'static [&'static str]) -> Self {
        Self { list: ListType::Map(keys), ..self }
    }

    pub(crate) const fn set(self) -> Self {
        Self { list: ListType::Set, ..self }
    }

    pub(crate) const fn atomic(self) -> Self {
        Self { map: Some(MapType::Atomic), ..self }
    }

    pub(crate) const fn granular(self) -> Self {
        Self { map: Some(MapType::Granular), ..self }
    }

    pub(crate) const fn merge(mut self, key: &'static str) -> Self {
        (self.patch.merge, self.patch.key) = (true, key);
        self
    }

    pub(crate) const fn replace(mut self) -> Self {
        self.patch.replace = true;
        self
    }

    pub(crate) const fn retain_keys(mut self) -> Self {
        self.patch.retain_keys = true;
        self
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}
