//! Output formats of the command line.

use clap::ValueEnum;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, a few for each kind, fitted to the width of the terminal
    Table,
    /// Like table, with labels and uids; never shortened to the width of the terminal
    Wide,
    /// JSON; watch prints one line per event: time, type, resource, object, changes
    Json,
    /// YAML; watch prints one document per event
    Yaml,
    /// Names as in kubectl -o name: pod/web-0
    Name,
}

impl Format {
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}
