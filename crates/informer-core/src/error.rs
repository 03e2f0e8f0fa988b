//! Errors of parsing and of configuration, shared by the modules of this crate.

use std::fmt;
use std::time::Duration;

/// The error of parsing a key, selector or field path, or of building one from invalid parts.
///
/// ```
/// # extern crate informer_core as informer;
/// use informer::error::ParseErrorKind;
/// use informer::selector::LabelSelector;
///
/// let error = LabelSelector::parse("a in x").unwrap_err();
/// assert_eq!(error.to_string(), r#"label selector "a in x": expected "(" at byte 5"#);
/// assert_eq!((error.kind(), error.position()), (ParseErrorKind::LabelSelector, Some(5)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    kind: ParseErrorKind,
    input: String,
    /// The key of the label whose value is `input`.
    label: Option<String>,
    position: Option<usize>,
    expected: &'static str,
    hint: Option<&'static str>,
}

/// The kind of input that could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// An object key.
    Key,
    /// A label selector.
    LabelSelector,
    /// A field selector.
    FieldSelector,
    /// The key of a label requirement.
    LabelKey,
    /// A value of a label requirement.
    LabelValue,
    /// The name of a field requirement.
    FieldName,
    /// A field path.
    FieldPath,
}

impl ParseError {
    pub(crate) fn new(kind: ParseErrorKind, input: impl Into<String>, expected: &'static str) -> Self {
        Self { kind, input: input.into(), label: None, position: None, expected, hint: None }
    }

    pub(crate) fn at(self, position: usize) -> Self {
        Self { position: Some(position), ..self }
    }

    pub(crate) fn with_hint(self, hint: Option<&'static str>) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn of_label(self, key: &str) -> Self {
        Self { label: Some(key.to_owned()), ..self }
    }

    /// Returns the kind of input that could not be parsed.
    pub fn kind(&self) -> ParseErrorKind {
        self.kind
    }

    /// Returns the input.
    pub fn input(&self) -> &str {
        &self.input
    }

    /// Returns the byte offset of the error, if it is known; the length of the input if the input ended too
    /// early.
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            write!(f, "label {label:?}, ")?;
        }
        let name = match self.kind {
            ParseErrorKind::Key => "object key",
            ParseErrorKind::LabelSelector => "label selector",
            ParseErrorKind::FieldSelector => "field selector",
            ParseErrorKind::LabelKey => "label key",
            ParseErrorKind::LabelValue => "value",
            ParseErrorKind::FieldName => "field name",
            ParseErrorKind::FieldPath => "field path",
        };
        write!(f, "{name} {:?}: expected {}", self.input, self.expected)?;
        if let Some(position) = self.position {
            write!(f, " at byte {position}")?;
        }
        match self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ParseError {}

/// The error of configuring a kind, a leader election or a field filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The kind is in use with another value of the option.
    #[error(
        "configure {kind}: `{option}` is already in use with another value (configure a kind before its first use)"
    )]
    AlreadyConfigured {
        /// The kind.
        kind: Box<str>,
        /// The option.
        option: &'static str,
    },
    /// A path of a field filter does not parse.
    #[error(transparent)]
    FieldPath(#[from] ParseError),
    /// A field filter would drop a field that identifies objects or that controllers depend on.
    #[error(
        "field filter: `{path}` cannot be dropped (it identifies the object, or controllers depend on it)"
    )]
    RequiredField {
        /// The path.
        path: Box<str>,
    },
    /// The lease duration is shorter than one second, the unit of the Lease field.
    #[error("lease duration {lease_duration:?} is shorter than a second")]
    LeaseDurationTooShort {
        /// The lease duration.
        lease_duration: Duration,
    },
    /// The leader would act after other candidates may take over.
    #[error("renew deadline {renew_deadline:?} must be shorter than the lease duration {lease_duration:?}")]
    RenewDeadlineTooLong {
        /// The renew deadline.
        renew_deadline: Duration,
        /// The lease duration, in whole seconds.
        lease_duration: Duration,
    },
    /// The leader would have no time for a second attempt to renew.
    #[error(
        "renew deadline {renew_deadline:?} must be more than 1.2 times the retry period {retry_period:?}"
    )]
    RetryPeriodTooLong {
        /// The retry period.
        retry_period: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
    },
    /// The election has no identity.
    #[error("leader election needs an identity")]
    NoIdentity,
    /// The name of a shard group cannot be the value of a label and the start of a Lease's name.
    #[error(
        "shard group: invalid name {name:?} (expected up to 63 lower-case letters, digits, hyphens and dots, with a letter or digit at both ends)"
    )]
    InvalidGroupName {
        /// The name.
        name: Box<str>,
    },
    /// The identity of a member of a shard group cannot be the end of a Lease's name.
    #[error(
        "shard group: invalid identity {identity:?} (expected lower-case letters, digits, hyphens and dots, with a letter or digit at both ends, and not `coordinator`)"
    )]
    InvalidIdentity {
        /// The identity.
        identity: Box<str>,
    },
    /// The number of ranges of a shard group is not supported.
    #[error("shard group: {count} ranges (expected a power of two up to 1024)")]
    InvalidRangeCount {
        /// The number.
        count: u32,
    },
}
