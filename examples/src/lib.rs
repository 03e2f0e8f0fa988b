//! The examples are programs: see the files beside this package's manifest. Nothing is shared between them.
