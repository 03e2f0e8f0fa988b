//! Shared by the examples: nothing yet.
