//! The row types of the generated table of built-in types and their fields.
//!
//! The table is in `types.rs`. Nothing here decides anything: a shape describes which values are allowed, not
//! how they are processed.

/// A type of the API with its fields, for example `io.k8s.api.core.v1.Pod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Type {
    /// The name in the `OpenAPI` documents.
    pub name: &'static str,
    /// The fields, sorted by name.
    pub fields: &'static [Field],
    /// Whether the object is owned and replaced as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
}

/// A field of a [`Type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The allowed values.
    pub shape: Shape,
    /// Whether the `OpenAPI` documents mark the field as required.
    pub required: bool,
    /// The default in the `OpenAPI` documents, as JSON text.
    ///
    /// `{}` on an object means that kube-apiserver always writes the field.
    pub default: Option<&'static str>,
    /// The treatment by strategic merge patches.
    pub patch: Patch,
    /// The granularity of ownership in this object, if it differs from that of its type.
    pub map_type: Option<MapType>,
}

/// The values allowed at a position in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Any value: raw extensions, embedded JSON.
    Any,
    /// `true` or `false`.
    Boolean,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Number,
    /// A string.
    String,
    /// Bytes as a base64 string.
    Bytes,
    /// A time with seconds precision.
    Time,
    /// A time with six fractional digits.
    MicroTime,
    /// A quantity such as `500m` or `1Gi`.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// An object with known fields.
    Object(TypeId),
    /// An object with arbitrary keys and values of one shape.
    Map(&'static Shape, MapType),
    /// A list.
    List(&'static Shape, ListType),
}

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

/// The index of a [`Type`] in [`TYPES`](crate::TYPES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(crate) u16);

impl Type {
    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let index = self.fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        self.fields.get(index)
    }
}

// The constructors of the generated table.

/// The type of lists that are owned as a whole.
pub(crate) const WHOLE: ListType = ListType::Atomic;

pub(crate) const fn of(name: &'static str, fields: &'static [Field]) -> Type {
    Type { name, fields, atomic: false }
}

pub(crate) const fn field(name: &'static str, shape: Shape) -> Field {
    let patch = Patch { merge: false, replace: false, retain_keys: false, key: "" };
    Field { name, shape, required: false, default: None, patch, map_type: None }
}

pub(crate) const fn object(of: u16) -> Shape {
    Shape::Object(TypeId(of))
}

impl Type {
    pub(crate) const fn atomic(self) -> Self {
        Self { atomic: true, ..self }
    }
}

impl Field {
    pub(crate) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    pub(crate) const fn map_type(self, map_type: MapType) -> Self {
        Self { map_type: Some(map_type), ..self }
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
}
