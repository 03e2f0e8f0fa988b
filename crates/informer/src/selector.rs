//! Label and field selectors: parsed from text or built from requirements.

pub use informer_core::selector::{FieldRequirement, FieldSelector, LabelSelector, Requirement};
