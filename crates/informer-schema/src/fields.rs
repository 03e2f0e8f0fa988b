//! What the fields of built-in objects are: the words in which the generated table speaks.
//!
//! The table is in `types.rs`. Nothing here decides anything: a shape says what may stand at a place, not what is done with it.

/// A type of the API with its fields, `io.k8s.api.core.v1.Pod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Type {
    /// The name under which the `OpenAPI` documents have it.
    pub name: &'static str,
    /// Sorted by name.
    pub fields: &'static [Field],
    /// Whether it is owned and replaced as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
}

/// A field of a [`Type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// What may stand there.
    pub shape: Shape,
    /// Whether the documents call it required.
    pub required: bool,
    /// The documents' default, as JSON text. `{}` on an object means that the field is always written.
    pub default: Option<&'static str>,
    /// How a strategic merge patch treats it.
    pub patch: Patch,
    /// Who owns the entries of the object here, where that is not as its type says.
    pub owned: Option<MapType>,
}

/// What may stand at a place in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Anything: raw extensions, embedded JSON.
    Any,
    /// `true` or `false`.
    Boolean,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Number,
    /// Text.
    String,
    /// Bytes, as base64 text.
    Bytes,
    /// A time in whole seconds.
    Time,
    /// A time with six digits of fraction.
    MicroTime,
    /// An amount, `500m` or `1Gi`.
    Quantity,
    /// A number or text.
    IntOrString,
    /// An object with fields of its own.
    Object(TypeId),
    /// An object with any keys, whose values are alike.
    Map(&'static Shape, MapType),
    /// A list.
    List(&'static Shape, ListType),
}

/// Who owns the entries of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapType {
    /// Each entry has owners of its own.
    Granular,
    /// The map is owned as a whole.
    Atomic,
}

/// What makes an entry of a list the same entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// The list is owned as a whole.
    Atomic,
    /// Its value.
    Set,
    /// The values of these fields.
    Map(&'static [&'static str]),
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patch {
    /// Lists are merged; without it they are replaced.
    pub merge: bool,
    /// Objects are replaced; without it they are merged.
    pub replace: bool,
    /// Fields that the patch does not name are dropped from the object.
    pub retain_keys: bool,
    /// The field that tells entries apart; empty for lists of plain values.
    pub key: &'static str,
}

/// The place of a [`Type`] in [`TYPES`](crate::TYPES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(crate) u16);

/// What a type is where the table says nothing.
pub(crate) const TYPE: Type = Type { name: "", fields: &[], atomic: false };

/// What a field is where the table says nothing.
pub(crate) const FIELD: Field = Field {
    name: "",
    shape: Shape::Any,
    required: false,
    default: None,
    patch: Patch { merge: false, replace: false, retain_keys: false, key: "" },
    owned: None,
};

impl Type {
    /// The field with a name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let place = self.fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        self.fields.get(place)
    }
}
