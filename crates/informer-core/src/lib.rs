//! The pure heart of `informer`.
pub mod reflector;
pub mod version;
